// The accounting of a KV cache: which blocks each sequence holds in each group, as numbers. It has
// no bytes and no pointers; it tells BlockContents what to copy, clear and discard.
//
// Sequences share blocks by reference: a fork copies tables, and only the block that a sequence is
// about to write into is copied if others hold it too (copy on write). What a group keeps and for
// how long is up to its policy (engine/kv/policies).
//
// A pass is a transaction: Reserve takes all blocks and lists copies, the caller makes the copies
// and runs the pass, then Commit makes the rows visible or Rollback returns the blocks.
// Thread-safety: none; one thread changes tables between passes, and they are read-only during a
// pass.
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

// A group as far as the accounting knows it.
struct AccountedGroup {
  std::unique_ptr<const Policy> policy;
  uint64_t block_bytes;  // of one block, in all layers
  int64_t blocks;        // in its pool
  int64_t layers;        // cache layers
};

struct CacheStats {
  struct Group {
    int64_t capacity = 0;   // blocks in the pool
    int64_t committed = 0;  // blocks below this number were in use at some time
    int64_t used = 0;       // blocks that something refers to
    int64_t shared = 0;     // blocks with more than one reference
    uint64_t dropped = 0;   // blocks given up behind windows since creation
    uint64_t block_bytes = 0;
  };
  uint64_t bytes_used = 0;  // by blocks that something refers to
  // Since creation:
  uint64_t bytes_peak = 0;     // the largest bytes_used
  uint64_t bytes_written = 0;  // rows that passes stored
  uint64_t bytes_copied = 0;   // by copies on write
  uint64_t blocks_taken = 0;
  uint64_t blocks_copied = 0;  // by copies on write
  IdVector<GroupId, Group> groups;
};

// The blocks of all groups together.
struct BlockTotals {
  int64_t used = 0;
  int64_t shared = 0;  // of those used: referred to more than once
  int64_t free = 0;    // that may still be used
};

class Ledger {
 public:
  struct Limits {
    int64_t context = 0;     // most positions of a sequence
    int64_t sequences = 1;   // most sequences that grow at the same time
    uint64_t bytes_max = 0;  // most bytes of blocks in use; 0 = as many as the pools hold
  };

  // `contents` outlives the ledger.
  Ledger(std::vector<AccountedGroup> groups, const Limits& limits, BlockContents& contents);

  // An empty sequence, with memory for its tables, so that passes allocate nothing.
  Sequence NewSequence() const;

  // ---- Passes ----

  // Checks, before any of the sequences grows, that all of them can, in passes of at most `piece`
  // positions of each. kContextFull; kOutOfMemory with the bytes needed and free, how many of the
  // sequences would fit, and how many tokens of each. Calls the reclaim function where blocks are
  // missing, and does not take back what that gave up.
  Status CheckRoom(std::span<const Growth> growths, int64_t piece);

  // Takes blocks for `tokens` more positions in every group, and lists copies of blocks that others
  // hold too. kContextFull beyond the context, kOutOfMemory without free blocks; the sequence then
  // holds the positions that it held before.
  Status Reserve(Sequence& sequence, int64_t tokens);
  // The copies that Reserve listed; the caller makes them before the pass or the next operation...
  std::span<const BlockCopy> copies() const { return budget_->copies; }
  // ...and says so.
  void ClearCopies() { budget_->copies.clear(); }
  void Commit(Sequence& sequence);
  void Rollback(Sequence& sequence);

  // ---- Going back ----

  // Keeps the first `length` positions. kInvalid beyond the sequence; kNotSupported where a group
  // no longer holds what the next token needs; nothing changes then.
  Status Rewind(Sequence& sequence, int64_t length);
  // The shortest length such that Rewind can go to it and to every longer one.
  int64_t RewindLimit(const Sequence& sequence) const;
  // Whether Rewind can go to a length of the sequence; a checkpoint may be below the limit.
  bool CanRewind(const Sequence& sequence, int64_t length) const;

  // The position at which a replay must begin so that everything from `length` on has the bits that
  // it had: a row of a window layer depends on window - 1 positions of the layer below, so these
  // look-backs add up over the layers. Where the sequence is cut into sections, a row depends on
  // nothing before its section, whatever the number of layers. States alone begin at the checkpoint
  // before `length`.
  int64_t ReplayBegin(const Sequence& sequence, int64_t length) const;
  // Takes the groups that cannot rewind back to `position`, which ReplayBegin returned; the others
  // keep all they have. Passes up to the length that the sequence has now then write only into the
  // groups that were taken back.
  void BeginReplay(Sequence& sequence, int64_t position);
  // Ends the replay where it has come to: that is the sequence's length from then on.
  void EndReplay(Sequence& sequence);

  // Keeps the sequence's present state, so that Rewind can come back to its length; does nothing in
  // groups of positions, which need no checkpoint. May give up an earlier checkpoint.
  void Checkpoint(Sequence& sequence);
  // Gives up a checkpoint of a group, or of any where `group` is kAnyGroup; also during a pass.
  // False if there is none.
  bool DropCheckpoint(Sequence& sequence, GroupId group);

  // No query sees the positions [begin, end) any more; others keep theirs. Blocks in the range are
  // dropped, no data is touched. kInvalid unless 0 <= begin <= end <= length; kNotSupported where a
  // group cannot forget.
  Status Prune(Sequence& sequence, int64_t begin, int64_t end);

  // Makes room for the positions from `end` on to move to `begin`, and returns the tables that will
  // hold them, by group. Where a group still holds position `begin` it is the sequence's own table,
  // with blocks that nobody shares (copies() may list some); where a window has dropped it, a new
  // table. kOutOfMemory without free blocks, kNotSupported as for Prune.
  Result<IdVector<GroupId, BlockTable>> PrepareMove(Sequence& sequence, int64_t begin, int64_t end);
  // Gives `tables` to the sequence after their rows have moved by `distance` positions.
  void FinishMove(Sequence& sequence, IdVector<GroupId, BlockTable> tables, int64_t distance);

  // ---- Sharing ----

  // `copy`, which is empty, holds the positions of `sequence` afterwards.
  void Fork(const Sequence& sequence, Sequence& copy);
  void Free(Sequence& sequence);

  // Gives an empty sequence `length` positions, in each group from first_positions[group] on, whose
  // rows are to be filled from elsewhere. kContextFull, kOutOfMemory; it stays empty then.
  Status Adopt(Sequence& sequence, int64_t length,
               const IdVector<GroupId, int64_t>& first_positions);

  // Gives an empty sequence the first `count` blocks of positions that it can share with others, as
  // block_of(group, number) names them; a state is that after block `number`.
  void Attach(Sequence& sequence, int64_t count,
              const std::function<BlockId(GroupId group, int64_t number)>& block_of);

  // A source of `length` positions, whose blocks in the fixed groups are to be filled. kOutOfMemory
  // without free blocks.
  Result<Source> NewSource(int64_t length);
  // The blocks are filled; gives up the blocks that only the encoder needed.
  void EndEncoding(Source& source);
  // kInvalid unless the sequence is empty.
  Status SetSource(Sequence& sequence, const Source& source);
  // Gives a source to a sequence from elsewhere, which has positions and no source yet.
  void ShareSource(Sequence& sequence, const Source& source);
  // The source lets go of its blocks; they become free when no sequence refers to them either.
  void FreeSource(Source& source);

  // A block with one reference, to be filled from elsewhere. kOutOfMemory without free blocks.
  Result<BlockId> TakeBlock(GroupId group, BlockId previous);
  // Adds a reference that no table holds, such as one of the index of prefixes.
  void AddReference(GroupId group, BlockId block) { blocks(group).AddReference(block); }
  void Release(GroupId group, BlockId block) { blocks(group).Release(block); }
  int references(GroupId group, BlockId block) const { return blocks(group).references(block); }
  // `reclaim` is called when a group has no free block, or, with kAnyGroup, when the budget is
  // spent; it releases a reference and returns true, or returns false if it has none to release.
  void SetReclaim(std::function<bool(GroupId group)> reclaim) {
    budget_->reclaim = std::move(reclaim);
  }

  // ---- What there is ----

  // A line for every block that is taken, copied or dropped behind a window. Empty: no log.
  using Log = std::function<void(std::string_view line)>;
  void SetLog(Log log) { budget_->log = std::move(log); }

  // The invariants: every block is free or has as many references as the tables of `sequences` and
  // `others(group, block)` say, tables are ascending and cover what their sequence may see. Names
  // the first one broken.
  Status Check(std::span<const Sequence* const> sequences,
               const std::function<int(GroupId group, BlockId block)>& others) const;
  // Checks the invariants of one sequence alone.
  Status CheckTables(const Sequence& sequence) const;

  IdRange<GroupId> group_ids() const { return groups_.ids(); }
  size_t groups() const { return groups_.size(); }
  const Policy& policy(GroupId group) const { return *groups_[group].policy; }
  int64_t context() const { return limits_.context; }
  int64_t sequences() const { return limits_.sequences; }
  uint64_t bytes_used() const { return budget_->bytes_used; }
  uint64_t bytes_max() const { return limits_.bytes_max; }
  CacheStats stats() const;
  // Allocates nothing.
  BlockTotals block_totals() const;

 protected:
  // Contents that take all their memory at once call this: every block counts as committed.
  void SetAllCommitted();

  GroupBlocks& blocks(GroupId group) { return groups_[group].blocks; }
  const GroupBlocks& blocks(GroupId group) const { return groups_[group].blocks; }

 private:
  struct Group {
    std::unique_ptr<const Policy> policy;
    GroupBlocks blocks;
    int64_t layers;
  };

  // The most bytes that the growths take, and whether they are free.
  struct Room {
    uint64_t bytes = 0;
    bool fits = true;
    GroupId lacking = kAnyGroup;  // a group without so many free blocks
  };
  Room RoomFor(const RoomQuestion& question) const;
  int64_t FirstNeeded(int64_t position) const;
  Error NoRoom(const RoomQuestion& question, uint64_t bytes) const;

  Limits limits_;
  std::unique_ptr<Budget> budget_;  // groups point to it
  IdVector<GroupId, Group> groups_;
  uint64_t bytes_written_ = 0;
  std::vector<BlockId> tails_;  // see RoomQuestion
  std::vector<int> mentions_;
};

}  // namespace kvant::kv
