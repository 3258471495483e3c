// Block numbers with reference counts: which blocks of a KV pool are free, and how many tables hold
// each.
//
// A block is either free or referenced. The lowest free number is handed out first, but the
// successor of the caller's previous block is preferred, so that a growing sequence lies in one
// stretch of memory. Thread-safety: none; the pool belongs to the thread that runs the passes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/id_vector.h"

namespace kvant::kv {

enum class BlockId : int32_t {};
inline constexpr BlockId kNoBlock{-1};

constexpr int32_t format_as(BlockId id) { return static_cast<int32_t>(id); }  // for fmt

// The block that lies `distance` blocks after another in memory.
constexpr BlockId Successor(BlockId block, int64_t distance = 1) {
  return IdAt<BlockId>(IndexOf(block) + static_cast<size_t>(distance));
}

class BlockPool {
 public:
  explicit BlockPool(int64_t blocks);

  // A free block with one reference, or kNoBlock if there is none.
  BlockId Take(BlockId previous = kNoBlock);

  void AddReference(BlockId block);
  // Drops one reference; the block becomes free with the last.
  void Release(BlockId block);

  int references(BlockId block) const { return references_[block]; }
  IdRange<BlockId> ids() const { return references_.ids(); }
  int64_t capacity() const { return static_cast<int64_t>(references_.size()); }
  int64_t used() const { return used_; }
  int64_t free() const { return capacity() - used_; }

 private:
  IdVector<BlockId, int32_t> references_;
  std::vector<uint64_t> free_bits_;  // one bit per block, set = free
  size_t first_word_ = 0;            // no free bit lies in an earlier word
  int64_t used_ = 0;
};

}  // namespace kvant::kv
