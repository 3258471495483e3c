// The blocks of one group, as numbers: taken within the budget that all groups share, referred to,
// copied on write, given back. BlockContents does to the bytes what follows from that.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/kv/accounting/tables.h"

namespace kvant::kv {

// The bytes of blocks: implemented by who stores them.
class BlockContents {
 public:
  virtual ~BlockContents() = default;
  virtual void Copy(const BlockCopy& copy) = 0;
  // Fills the block with zeros: some of its rows will not be written, but attention multiplies them
  // by a weight of zero, which needs finite numbers.
  virtual void Clear(GroupId group, BlockId block) = 0;
  // Nothing refers to the block any more.
  virtual void Discard(GroupId group, BlockId block) = 0;
};

// Stands in place of a group's number.
inline constexpr GroupId kAnyGroup{-1};

// The parts that the groups of a cache share: a limit on bytes, counters, and the copies still to
// be made.
struct Budget {
  uint64_t bytes_max = 0;   // most bytes of blocks in use; 0 = as many as the pools hold
  uint64_t bytes_used = 0;  // by blocks that something refers to
  uint64_t bytes_peak = 0;  // the largest bytes_used since creation
  uint64_t bytes_copied = 0;
  uint64_t blocks_taken = 0;
  uint64_t blocks_copied = 0;
  std::vector<BlockCopy> copies;  // to be made before the pass runs or the next operation begins
  std::function<bool(GroupId group)> reclaim;  // see Ledger::SetReclaim
  std::function<void(std::string_view line)> log;
  BlockContents* contents = nullptr;

  void MakeCopies();  // makes all of `copies` at once
};

class GroupBlocks {
 public:
  GroupBlocks(GroupId group, int64_t blocks, uint64_t block_bytes, Budget& budget)
      : group_(group), block_bytes_(block_bytes), pool_(blocks), budget_(&budget) {}

  // A free block with one reference; kOutOfMemory if there is none, and reclaiming gives none.
  Status Take(BlockId previous, BlockId* block);
  // As Take, with the block filled with zeros.
  Status TakeClear(BlockId previous, BlockId* block);
  void AddReference(BlockId block) { pool_.AddReference(block); }
  void Release(BlockId block);

  // If others hold the entry's block too, gives the entry a block of its own and adds the copy to
  // Budget::copies. kOutOfMemory as for Take.
  Status CopyOnWrite(TableEntry& entry);

  void AddReferences(const BlockTable& table);
  // Gives up the entries whose blocks begin at position `positions` or later.
  void Shrink(BlockTable& table, int64_t positions);
  // Gives up the first `count` entries, which hold what is not pruned of `positions`.
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
  GroupId group_;
  uint64_t block_bytes_;
  BlockPool pool_;
  Budget* budget_;
  int64_t committed_ = 0;  // blocks below this number were taken at some time
  uint64_t dropped_ = 0;   // blocks given up behind a window since creation
};

}  // namespace kvant::kv
