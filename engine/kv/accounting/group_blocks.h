// The blocks of one group, as numbers: taken within the budget that all groups share, referred to,
// copied on write, given back. What that means for their contents is told to BlockContents.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/kv/accounting/tables.h"

namespace kvant::kv {

// Whoever stores what blocks hold.
class BlockContents {
 public:
  virtual ~BlockContents() = default;
  virtual void Copy(const BlockCopy& copy) = 0;
  // Finite numbers in rows that are never written but may be multiplied by a weight of zero.
  virtual void Clear(int group, BlockId block) = 0;
  // A block that nothing refers to any more.
  virtual void Discard(int group, BlockId block) = 0;
};

// What the groups of a cache have in common.
struct Budget {
  uint64_t bytes_max = 0;   // of blocks in use; 0 = what the pools hold
  uint64_t bytes_used = 0;  // by blocks that something refers to
  uint64_t bytes_peak = 0;  // the most of it since creation
  uint64_t bytes_copied = 0;
  uint64_t blocks_taken = 0;
  uint64_t blocks_copied = 0;
  std::vector<BlockCopy> copies;  // that must be made before the step or the next operation
  std::function<bool()> reclaim;
  std::function<void(std::string_view line)> log;
  BlockContents* contents = nullptr;

  void MakeCopies();  // all of them, now
};

class GroupBlocks {
 public:
  GroupBlocks(int group, int64_t blocks, uint64_t block_bytes, Budget& budget)
      : group_(group), block_bytes_(block_bytes), pool_(blocks), budget_(&budget) {}

  // A free block with one reference; kOutOfMemory if there is none, and reclaiming gives none.
  Status Take(BlockId previous, BlockId* block);
  // The same with zeros for the rows that will not be written.
  Status TakeClear(BlockId previous, BlockId* block);
  void AddReference(BlockId block) { pool_.AddReference(block); }
  void Release(BlockId block);

  // Gives an entry whose block others hold too one of its own, and marks the copy.
  Status CopyOnWrite(TableEntry& entry);

  void AddReferences(const BlockTable& table);
  // Gives up the entries from the one that holds `positions` on.
  void Shrink(BlockTable& table, int64_t positions);
  // Gives up the first `count` entries, which hold `positions` but for what was pruned.
  void DropFront(BlockTable& table, size_t count, PositionRange positions);

  int references(BlockId block) const { return pool_.references(block); }
  const BlockPool& pool() const { return pool_; }
  uint64_t block_bytes() const { return block_bytes_; }
  uint64_t bytes_per_token() const { return block_bytes_ / kBlockTokens; }
  bool limited() const { return budget_->bytes_max != 0; }
  int64_t committed() const { return committed_; }
  void set_committed(int64_t blocks) { committed_ = blocks; }
  uint64_t dropped() const { return dropped_; }

 private:
  int group_;
  uint64_t block_bytes_;
  BlockPool pool_;
  Budget* budget_;
  int64_t committed_ = 0;  // blocks that were taken at some time
  uint64_t dropped_ = 0;   // behind a window
};

}  // namespace kvant::kv
