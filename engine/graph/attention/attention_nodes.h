// The nodes of an attention: one changes a row's queries, keys and values and stores keys and
// values in the cache, the other attends.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>

#include "cpu/kernels/rope.h"
#include "engine/graph/activations.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/plan.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

// RMS norms of every head's query, key and value. A norm whose vector is empty is not computed; one
// that has no weights in the model has a vector of ones here.
struct QkNorms {
  WeightVector query;  // [k_dim]
  WeightVector key;    // [k_dim]
  float epsilon = 0;
  WeightVector value;  // [v_dim]
};

enum class NormOrder : uint8_t { kBeforeRope, kAfterRope };

// A factor on the queries of a position p, so that attention stays sharp over many positions: 1 +
// scale * ln(1 + floor((p + offset) / length)).
struct QueryTemperature {
  float scale = 0;  // 0: nothing does
  float length = 1;
  float offset = 0;

  float FactorAt(int64_t position) const {
    return 1.0f + scale * std::log1p(std::floor((static_cast<float>(position) + offset) / length));
  }
};

// The steps that change every head between the product that makes it and the cache.
struct HeadChanges {
  QkNorms norms;
  NormOrder norm_order = NormOrder::kBeforeRope;
  cpu::RopeStyle rope_style = cpu::RopeStyle::kInterleaved;
  int64_t n_rot = 0;           // the first dimensions of queries and keys are rotated
  ValueId cos_sin = kNoValue;  // by the angles of MakeRopeTable; kNoValue: there is no rotation
  QueryTemperature temperature = {};   // after norms and rotation
  bool values_are_keys = false;        // values are the keys as they are before all of this
  std::vector<float> key_offset = {};  // CacheLayer::key_offset
  // The row has queries alone, which meet what another attention stores in the cache layer.
  bool queries_only = false;

  // Whether a pass without a cache has nothing to do.
  bool empty_without_cache() const {
    return norms.query.empty() && norms.key.empty() && norms.value.empty() && cos_sin == kNoValue &&
           temperature.scale == 0 && !values_are_keys;
  }
};

// Applies `changes` to the queries, keys and values of qkv in place, and stores keys and values
// in the cache layer `cache_id`.
std::unique_ptr<Node> MakeRopeAndStore(const cpu::KernelTable& kernels, int cache_id,
                                       const AttentionShape& shape, HeadChanges changes,
                                       ValueId qkv);

// out.floats = causal attention of qkv's queries over the cache, [heads][v_dim]; `scale` multiplies
// the products of queries and keys. Where out.int8 is a value the result is quantized, too; the
// shape must be one of QuantizesAttention.
std::unique_ptr<Node> MakeAttention(const cpu::KernelTable& kernels, int cache_id,
                                    const AttentionShape& shape, float scale, ValueId qkv,
                                    const Activations& out);

// Attends to keys and values that another attention has stored in the cache layer.
std::unique_ptr<Node> MakeAttention(const cpu::KernelTable& kernels, int cache_id,
                                    const AttentionShape& shape, float scale,
                                    const AttentionInput& in, const Activations& out);

// Whether the results of the query heads of one kv head are a whole number of quantized blocks.
bool QuantizesAttention(const AttentionShape& shape);

}  // namespace kvant::graph
