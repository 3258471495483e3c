#include "tools/bench/bench_bound.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/graph/plan.h"
#include "formats/gguf.h"

namespace kvant::tools {
namespace {

using graph::PassShape;
using graph::RowSpace;

// One pass of the encoder, whose own keys and values are floats.
graph::Work CountEncoding(const Model& model, bool kv_cache, int64_t length) {
  const PassShape::Part part = {.rows = length, .end = length, .source = length};
  PassShape pass;
  pass.rows.Set(RowSpace::kPass, length);
  if (model.frame_shape().has_value()) {
    pass.rows.Set(RowSpace::kFrames, graph::kFramesPerPosition * length);
  }
  pass.parts = {&part, 1};
  if (kv_cache) pass.cache = {KvType::kF32, KvType::kF32};
  return model.plan(graph::kEncodePlan).WorkOf(pass);
}

// Adds up what the nodes of the plan say of their work.
class Counter {
 public:
  Counter(const Model& model, const SessionOptions& options, int64_t source)
      : plan_(model.plan()), options_(options), source_(source) {
    if (options.kv_cache) cache_ = {options.k_type, options.v_type, options.state_type};
  }

  const graph::Work& work() const { return work_; }

  // Adds the work of matrices over `rows` tokens, in the fewest passes.
  void AddMatrices(int64_t rows, int64_t logit_rows) {
    const int64_t chunk = options_.kv_cache ? options_.chunk : rows;
    for (int64_t done = 0; done < rows; done += chunk) {
      PassShape pass;
      pass.rows.Set(RowSpace::kPass, std::min(chunk, rows - done));
      pass.rows.Set(RowSpace::kHead, done == 0 ? logit_rows : 0);
      work_ += plan_.WorkOf(pass);
    }
  }

  // Attention of the tokens at [end - rows, end) of one sequence, in one pass.
  void AddAttention(int64_t rows, int64_t end) {
    const PassShape::Part part = {.rows = rows, .end = end, .source = source_};
    AddParts({&part, 1});
  }

  void AddEncoding(const Model& model, int64_t length) {
    work_ += CountEncoding(model, options_.kv_cache, length);
  }

  // One pass over a token each of several sequences with `end` tokens. They share nothing, or all.
  void AddStep(int64_t rows, int64_t end, bool shared) {
    AddMatrices(rows, rows);
    std::vector<PassShape::Part> parts;
    for (int64_t row = 0; row < rows; ++row) parts.push_back({1, end, shared && row > 0, source_});
    AddParts(parts);
  }

 private:
  void AddParts(std::span<const PassShape::Part> parts) {
    work_ += plan_.WorkOf({.rows = {}, .parts = parts, .cache = cache_});
  }

  const graph::Plan& plan_;
  const SessionOptions& options_;
  int64_t source_;  // positions, of every sequence
  std::optional<PassShape::CacheTypes> cache_;
  graph::Work work_;
};

}  // namespace

graph::Work CountWork(const Model& model, const SessionOptions& options, const SpeedCase& test) {
  if (test.encodes) return CountEncoding(model, options.kv_cache, test.source);
  Counter counter(model, options, test.source);
  const int64_t end = test.depth + test.n_prompt;
  if (!options.kv_cache) {  // every step computes all that is there, and stores nothing
    const auto add = [&](int64_t rows) {
      counter.AddMatrices(rows * test.sequences, test.sequences);
      for (int64_t i = 0; i < test.sequences; ++i) {
        counter.AddAttention(rows, rows);
        if (test.source > 0) counter.AddEncoding(model, test.source);
      }
    };
    if (test.n_prompt > 0) add(end);
    for (int64_t i = 1; i <= test.n_gen; ++i) add(end + i);
    return counter.work();
  }
  if (test.n_prompt > 0) counter.AddMatrices(test.n_prompt * test.sequences, test.sequences);
  for (int64_t sequence = 0; sequence < test.sequences; ++sequence) {
    for (int64_t done = 0; done < test.n_prompt;) {
      const int64_t rows = std::min(options.chunk, test.n_prompt - done);
      done += rows;
      counter.AddAttention(rows, test.depth + done);
    }
  }
  const bool beams = test.beams > 1;
  // A search begins with at least one token, and with one beam for all of them.
  const int64_t first = beams ? std::max<int64_t>(end, 1) : end;
  for (int64_t i = 1; i <= test.n_gen; ++i) {
    counter.AddStep(beams ? test.beams : test.sequences, first + i, beams);
  }
  return counter.work();
}

std::vector<std::span<const std::byte>> DecodeWeights(const Model& model) {
  std::vector<std::span<const std::byte>> pieces;
  for (const graph::Stage stage : {graph::Stage::kBody, graph::Stage::kHead}) {
    for (const auto& node : model.plan().nodes(stage)) {
      for (const formats::GgufTensor* matrix : node->Matrices()) {
        pieces.emplace_back(matrix->data, static_cast<size_t>(matrix->size_bytes));
      }
    }
  }
  return pieces;
}

double KvBytes(const MemoryPlan& plan, int64_t positions) {
  double bytes = 0;
  for (const MemoryPlan::Group& group : plan.groups) {
    bytes += static_cast<double>(std::min(group.rows, positions)) *
             static_cast<double>(group.bytes_per_token);
  }
  return bytes;
}

SpeedBound BoundOf(const graph::Work& work, const SpeedLimits& limits) {
  const auto seconds = [](double amount, double per_second) {
    return amount > 0 && per_second > 0 ? amount / per_second : 0.0;
  };
  const double memory = seconds(work.weight_bytes, limits.weights_per_second) +
                        seconds(work.cache_bytes, limits.kv_per_second);
  const double compute = seconds(work.int8_macs, limits.int8) +
                         seconds(work.int16_macs, std::max(limits.int16, limits.float32)) +
                         seconds(work.float_macs, limits.float32);
  if (memory == 0 && compute == 0) return {};
  return {memory >= compute ? "memory" : "compute", std::max(memory, compute)};
}

}  // namespace kvant::tools
