// The accounting of a KV cache: which blocks sequences hold in each group, as numbers. No bytes and
// no pointers: what must happen to contents is told to BlockContents.
//
// Sequences share blocks by reference: a fork copies tables, and only the block that a sequence is
// about to write into is copied if others hold it too (copy on write). What a group keeps and for
// how long is its policy's affair (engine/kv/policies).
//
// A step is a transaction: Reserve takes all blocks and marks copies, which are made, then Commit
// makes the rows visible or Rollback returns the blocks. Thread-safety: none; one thread changes
// tables between steps, and they are read-only during a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/kv/accounting/group_blocks.h"
#include "engine/kv/accounting/policy.h"
#include "engine/kv/accounting/tables.h"

namespace kvant::kv {

// A group in numbers.
struct AccountedGroup {
  std::unique_ptr<const Policy> policy;
  uint64_t block_bytes;
  int64_t blocks;  // of its pool
  int64_t layers;
};

struct CacheStats {
  struct Group {
    int64_t capacity = 0;   // blocks of the pool
    int64_t committed = 0;  // of which so many were written to at some time
    int64_t used = 0;       // that something refers to
    int64_t shared = 0;     // of these: by more than one reference
    uint64_t dropped = 0;   // behind windows since creation
    uint64_t block_bytes = 0;
  };
  uint64_t bytes_used = 0;     // by blocks that something refers to
  uint64_t bytes_peak = 0;     // the most of it since creation
  uint64_t bytes_written = 0;  // rows stored by steps since creation
  uint64_t bytes_copied = 0;   // by copies on write since creation
  uint64_t blocks_taken = 0;   // since creation
  uint64_t blocks_copied = 0;
  std::vector<Group> groups;
};

class Ledger {
 public:
  struct Limits {
    int64_t context = 0;     // positions of a sequence
    int64_t sequences = 1;   // that grow at the same time
    uint64_t bytes_max = 0;  // of blocks in use; 0 = what the pools hold
  };

  // `contents` outlives the ledger.
  Ledger(std::vector<AccountedGroup> groups, const Limits& limits, BlockContents& contents);

  // With memory for its tables, so that steps allocate nothing.
  Sequence NewSequence() const;

  // ---- Steps ----

  // Whether sequences can all grow in steps of at most `piece` positions each, before any of them
  // does. kContextFull; kOutOfMemory with the bytes needed and free, how many of the sequences
  // would fit, and how many tokens of each. What the reclaim function gives up for it is gone.
  Status CheckRoom(std::span<const Growth> growths, int64_t piece);

  // Takes blocks for `tokens` more positions in every group, and marks copies of blocks that others
  // hold too. kContextFull beyond the context, kOutOfMemory without free blocks; the sequence holds
  // the same positions then.
  Status Reserve(Sequence& sequence, int64_t tokens);
  // The copies that Reserve marked, which must be made before the step or the next operation.
  std::span<const BlockCopy> copies() const { return budget_->copies; }
  // They are made.
  void ClearCopies() { budget_->copies.clear(); }
  void Commit(Sequence& sequence);
  void Rollback(Sequence& sequence);

  // ---- Going back ----

  // Keeps the first `length` positions. kInvalid beyond the sequence; kNotSupported where a group
  // no longer holds what the next token needs; nothing changes then.
  Status Rewind(Sequence& sequence, int64_t length);
  // The length from which on Rewind can go back to every one; 0: to all.
  int64_t RewindLimit(const Sequence& sequence) const;

  // Where a replay must begin so that it gives the bits for `length` and after it: each layer of a
  // window group looks back at the layer below, so the spans add up.
  int64_t ReplayBegin(const Sequence& sequence, int64_t length) const;
  // Takes back to `position`, as ReplayBegin says, the groups that cannot rewind; the others keep
  // all they have. Steps up to the length that the sequence has now then compute only what is gone.
  void BeginReplay(Sequence& sequence, int64_t position);
  // The sequence is as long as the replay has come.
  void EndReplay(Sequence& sequence);

  // Keeps the state of the sequence's length, so that Rewind can go back to it; does nothing in
  // groups that can anyway. Room for the blocks that stay is not counted in a policy's need.
  void Checkpoint(Sequence& sequence);

  // No query sees the positions [begin, end) any more; others keep theirs. Blocks in the range are
  // dropped, no data is touched. kInvalid unless 0 <= begin <= end <= length; kNotSupported where a
  // group cannot forget.
  Status Prune(Sequence& sequence, int64_t begin, int64_t end);

  // Room for the positions from `end` on to move to `begin`: the tables that will hold them, by
  // group. Where all of them are there it is the sequence's own table, made private (copies must
  // follow); behind a window it is a new one. kOutOfMemory without free blocks, kNotSupported as
  // for Prune.
  Result<std::vector<BlockTable>> PrepareMove(Sequence& sequence, int64_t begin, int64_t end);
  // Takes these tables over when the rows have moved by `distance` positions.
  void FinishMove(Sequence& sequence, std::vector<BlockTable> tables, int64_t distance);

  // ---- Sharing ----

  // `copy`, which is empty, holds the same positions as `sequence` afterwards.
  void Fork(const Sequence& sequence, Sequence& copy);
  void Free(Sequence& sequence);

  // Gives an empty sequence `length` positions, in each group from first_positions[group] on, whose
  // rows are to be filled from elsewhere. kContextFull, kOutOfMemory; it stays empty then.
  Status Adopt(Sequence& sequence, int64_t length, std::span<const int64_t> first_positions);

  // Gives an empty sequence the first `count` blocks of positions that it can share with others, as
  // block_of(group, number) names them.
  void Attach(Sequence& sequence, int64_t count,
              const std::function<BlockId(int group, int64_t number)>& block_of);

  // A source of `length` positions, whose blocks in the fixed groups are to be filled. kOutOfMemory
  // without free blocks.
  Result<Source> NewSource(int64_t length);
  // kInvalid unless the sequence is empty.
  Status SetSource(Sequence& sequence, const Source& source);
  // Its blocks end with their last holder.
  void FreeSource(Source& source);

  // A block with one reference, to be filled from elsewhere. kOutOfMemory without free blocks.
  Result<BlockId> TakeBlock(int group, BlockId previous);
  // References of a block that something beside tables holds, such as an index of prefixes.
  void AddReference(int group, BlockId block) { blocks(group).AddReference(block); }
  void Release(int group, BlockId block) { blocks(group).Release(block); }
  int references(int group, BlockId block) const { return blocks(group).references(block); }
  // Called when no block is free or the budget is spent; returns whether it released any block.
  void SetReclaim(std::function<bool()> reclaim) { budget_->reclaim = std::move(reclaim); }

  // ---- What there is ----

  // Called with a line for every block that is taken, copied or dropped behind a window; empty =
  // nobody.
  using Log = std::function<void(std::string_view line)>;
  void SetLog(Log log) { budget_->log = std::move(log); }

  // The invariants: every block is free or has as many references as the tables of `sequences` and
  // `others(group, block)` say, tables are ascending and cover what their sequence may see. Names
  // the first one broken.
  Status Check(std::span<const Sequence* const> sequences,
               const std::function<int(int group, BlockId block)>& others) const;
  // The part of Check that concerns one sequence.
  Status CheckTables(const Sequence& sequence) const;

  int groups() const { return static_cast<int>(groups_.size()); }
  const Policy& policy(int group) const { return *groups_[static_cast<size_t>(group)].policy; }
  int64_t context() const { return limits_.context; }
  int64_t sequences() const { return limits_.sequences; }
  uint64_t bytes_used() const { return budget_->bytes_used; }
  uint64_t bytes_max() const { return limits_.bytes_max; }
  CacheStats stats() const;

 protected:
  // Where contents take all their memory at once.
  void SetAllCommitted();

  GroupBlocks& blocks(int group) { return groups_[static_cast<size_t>(group)].blocks; }
  const GroupBlocks& blocks(int group) const { return groups_[static_cast<size_t>(group)].blocks; }

 private:
  struct Group {
    std::unique_ptr<const Policy> policy;
    GroupBlocks blocks;
    int64_t layers;
  };

  // The bytes that the growths take, and whether these are there.
  struct Room {
    uint64_t bytes = 0;
    bool fits = true;
  };
  Room RoomFor(const RoomQuestion& question) const;
  Error NoRoom(const RoomQuestion& question, uint64_t bytes) const;

  Limits limits_;
  std::unique_ptr<Budget> budget_;  // groups point to it
  std::vector<Group> groups_;
  uint64_t bytes_written_ = 0;
  std::vector<BlockId> tails_;  // see RoomQuestion
  std::vector<int> mentions_;
};

}  // namespace kvant::kv
