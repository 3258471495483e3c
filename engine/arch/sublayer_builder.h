// The argument of a sublayer's AddNodes: the builder of the plan, and functions that find the
// sublayer's tensors, norm its input and add its result to the stream.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/matmul.h"
#include "engine/graph/activations.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/builder.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/norm.h"
#include "engine/graph/rowwise/rope.h"
#include "engine/graph/rowwise/stream_nodes.h"

namespace kvant::arch {

struct Sublayer;

// One of several matrices with the same input, which a file may hold as one matrix each, or as one
// matrix with the rows of all.
struct StackedMatrix {
  std::string_view name;  // "attn_q"
  int64_t rows = 0;
};

struct Norm;

// The weights of a norm of vectors of `cols` values.
Result<graph::Norm> ReadNorm(graph::PlanBuilder& plan, const Norm& norm, const std::string& prefix,
                             int64_t cols);

// The keys and values that an attention stores.
struct StoredKeys {
  int cache_id = -1;
  graph::AttentionInput input;  // where they lie in a pass without cache
};

// A norm of the stream in place, as long as it is the last node of the plan.
struct StreamNorm {
  std::string name;
  graph::Norm norm = {};
  size_t nodes = 0;  // of the body, with it; 0: there is none
};

// Values that the sublayers of a stack share.
struct StackValues {
  StreamNorm stream_norm;
  std::vector<StoredKeys> keys;                   // by the number of the layer
  graph::ValueId choice = graph::kNoValue;        // of the last indexer
  graph::ValueId layer_inputs = graph::kNoValue;  // engine/arch/sublayers/layer_input.h
  graph::ValueId streams = graph::kNoValue;       // engine/arch/sublayers/streams.h
  graph::StreamShape stream_shape;
};

class SublayerBuilder {
 public:
  struct Place {
    std::string prefix;                       // of its tensors: "blk.3."
    int64_t dim = 0;                          // of the stream
    graph::ValueId source = graph::kNoValue;  // the stream as the norms before the block read it
    graph::ValueId stream = graph::kNoValue;  // what is added to
    size_t layer = 0;
    StackValues* shared = nullptr;
    cpu::Store store = cpu::Store::kAdd;  // kSet: the stream begins with what the block gives
    std::string first_prefix = {};        // of the first layer's tensors
    std::optional<int> cache_id = {};     // of a cache layer that the plan has already
    bool stores_only = false;             // an attention ends when it has stored keys and values
  };

  // `cos_sin` holds a value for each of the ropes.
  SublayerBuilder(graph::PlanBuilder& plan, std::span<const graph::RopeSpec> ropes,
                  std::span<const graph::ValueId> cos_sin, const Sublayer& sublayer, Place place)
      : plan_(plan),
        ropes_(ropes),
        cos_sin_(cos_sin),
        sublayer_(sublayer),
        place_(std::move(place)) {}

  graph::PlanBuilder& plan() { return plan_; }
  const graph::RopeSpec& rope(size_t index) const { return ropes_[index]; }
  graph::ValueId cos_sin(size_t index) const { return cos_sin_[index]; }
  int64_t dim() const { return place_.dim; }
  size_t layer() const { return place_.layer; }
  graph::ValueId source() const { return place_.source; }
  StackValues& shared() const { return *place_.shared; }
  bool stores_only() const { return place_.stores_only; }
  // The cache id of an attention's cache layer, which is added to the plan unless it is there.
  int CacheIdOf(const graph::CacheLayer& layer) {
    return place_.cache_id.has_value() ? *place_.cache_id : plan_.plan().AddCacheLayer(layer);
  }
  std::string Name(std::string_view name) const { return place_.prefix + std::string(name); }
  // The name that a tensor of this layer has in the stack's first layer.
  std::string FirstLayerName(std::string_view name) const {
    return place_.first_prefix + std::string(name);
  }

  // The matrices that multiply a row of `cols` values, as the file holds them: one matrix
  // `fused`.weight with all rows in this order, or one for each. Their biases may be one or several
  // too, whatever the matrices are.
  Result<std::vector<graph::MatMulOperand>> Stacked(std::string_view fused, int64_t cols,
                                                    std::span<const StackedMatrix> matrices) const;
  // The matrices that multiply a row of `cols` values, where no file fuses them.
  Result<std::vector<graph::MatMulOperand>> Separate(int64_t cols,
                                                     std::span<const StackedMatrix> matrices) const;

  // The stream after the norm that stands before the block, in the forms that `readers` read.
  Result<graph::Activations> AddInput(std::string_view name,
                                      const std::vector<graph::MatMulOperand>& readers,
                                      const std::vector<graph::ExpertOperand>& experts = {});

  // The stream after the norm that stands before the block, as floats.
  Result<graph::ValueId> AddFloatInput(std::string_view name);

  // Where a block stores or adds its result: the stream, or a value of its own if a norm follows.
  struct Target {
    graph::ValueId value = graph::kNoValue;
    cpu::Store store = cpu::Store::kAdd;
  };
  Target BeginResult(std::string_view name);
  // Adds the target to the stream, after the norm that follows the block.
  Status EndResult(const Target& target);
  // A builder for a part of the block, which has norms of its own and gives its result to `target`.
  // The part must outlive it.
  SublayerBuilder Part(const Sublayer& part, const Target& target) const;
  // A builder for the same block, which gives the result to `target` instead of the stream.
  SublayerBuilder Into(const Target& target) const { return Part(sublayer_, target); }

  // The products of `operands` with `in` as the block's result.
  Status AddToStream(std::string_view name, std::vector<graph::MatMulOperand> operands,
                     const graph::Activations& in);

 private:
  // Whether the block reads the stream as a norm has just left it.
  bool ReadsNormedStream() const;
  Status AddNormOfInput(std::string_view name, const graph::Activations& input);
  Target NewTarget(std::string_view name);

  graph::PlanBuilder& plan_;
  std::span<const graph::RopeSpec> ropes_;
  std::span<const graph::ValueId> cos_sin_;
  const Sublayer& sublayer_;
  Place place_;
};

}  // namespace kvant::arch
