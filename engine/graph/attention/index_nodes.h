// The operations of an indexer (DeepSeek-V3.2): keys of its own for every position, in a cache
// layer that has no values, and the choice of what each row of the pass sees. Where units have one
// key each (Qwen 3.8 Flash-Next), a position's key is made of those of its last `block` positions,
// and is rotated as at the first of them.
#pragma once

#include <cstdint>
#include <memory>

#include "cpu/kernels/rope.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/attention/latent_nodes.h"
#include "engine/graph/plan.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

// Where the vectors of an indexer lie.
struct IndexInput {
  HeadColumns queries;  // [heads][dim], next to each other
  HeadColumns key;      // [dim]
  HeadColumns weights;  // [heads]; no value: all are 1
};

// Rotates the first `n_rot` values of queries and keys, in place, and stores keys.
struct IndexStore {
  IndexShape shape;
  int cache_id = 0;
  cpu::RopeStyle rope_style = cpu::RopeStyle::kInterleaved;
  int64_t n_rot = 0;
  ValueId cos_sin = kNoValue;
  size_t rope = 0;  // of PassContext::ropes
  IndexInput in;
};
std::unique_ptr<Node> MakeIndexStore(const cpu::KernelTable& kernels, const IndexStore& store);

// choice = what each row sees (choice.h). Weights are multiplied by `weight_scale`.
std::unique_ptr<Node> MakeChoose(const cpu::KernelTable& kernels, int cache_id,
                                 const IndexShape& shape, const IndexInput& in, float weight_scale,
                                 ValueId choice);

}  // namespace kvant::graph
