// The parts of an attention node that each of its ways needs: over the cache, without a cache, and
// on a device.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels/attention.h"
#include "cpu/kernels/table.h"
#include "engine/graph/activations.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/plan.h"

namespace kvant::graph {

struct AttentionParts {
  const cpu::KernelTable& kernels;
  int cache_id;
  AttentionShape shape;
  int64_t heads_per_kv;
  float scale;  // of the products of queries and keys
  AttentionInput in;
  Activations out;

  bool is_latent() const { return shape.latent.has_value(); }

  // The head of the cache layer that a task reads.
  int CacheHead(int64_t kv_head) const { return is_latent() ? 0 : static_cast<int>(kv_head); }

  // The choice that a kv head's query heads see.
  int64_t ChoiceNumber(int64_t kv_head) const {
    return kv_head * shape.index->choices() / shape.kv_heads;
  }

  // The entries of `values`, [heads], for the query heads of a kv head; null where that is empty.
  const float* OfHeads(const std::vector<float>& values, int64_t kv_head) const {
    return values.empty() ? nullptr : values.data() + kv_head * heads_per_kv;
  }

  // The terms that distances add to the scores of a kv head's query heads.
  cpu::DistanceBias DistancesOf(int64_t kv_head) const;

  // Rotates the results of a kv head back where the cache rotates values, and quantizes them.
  void Finish(const PassContext& pass, int64_t first_row, int64_t rows, int64_t kv_head) const;
};

}  // namespace kvant::graph
