// Scores by which an indexer chooses the positions that attention sees: the task that a kernel is
// given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/kernels/attention.h"
#include "cpu/kv_format_list.h"

namespace kvant::cpu {

// For every position p of [begin, end) that a run of the row holds:
//   scores[p - begin] = sum over the heads h of weights[h] * max(0, q[h] . k[p]), or
//   scores[p - begin] = q . k[p] of a single head, where there are no weights.
// A product is one chain of fused multiply-adds over the dimensions, in their order; with codes it
// is one over the numbers of the codes, times the scale of the key. Heads are added in their order,
// by fused multiply-adds from zero on. Other scores keep what they have.
struct IndexTask {
  const float* queries = nullptr;  // [heads][dim]
  const float* weights = nullptr;  // [heads]; null: there is one head
  int heads = 1;
  int dim = 0;
  KvType type = KvType::kF16;
  // By first position; only keys and key scales are read. Runs of other rows are left out.
  std::span<const KvRun> runs;
  int64_t row = 0;    // the bit of KvRun::rows, modulo 64
  int64_t begin = 0;  // a multiple of kKeyTileTokens
  int64_t end = 0;
  float* scores = nullptr;       // [end - begin]
  std::span<std::byte> scratch;  // IndexScratchBytes, private to the thread, 64-byte aligned
};

// Key tiles that are scored together, at most.
inline constexpr int kIndexTiles = 4;

// Room for the queries in the order of the kernel, and for the numbers of some tiles of codes.
constexpr size_t IndexScratchBytes(int heads, int dim) {
  const size_t numbers = static_cast<size_t>(dim) * kIndexTiles * kKeyTileTokens;
  const size_t queries = (static_cast<size_t>(heads) * static_cast<size_t>(dim) + 15) / 16 * 16;
  return (queries + numbers) * sizeof(float);
}

}  // namespace kvant::cpu
