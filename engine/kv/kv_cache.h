// The KV cache: blocks of 32 positions in one pool per layer group, and a block table per sequence
// and group.
//
// Layers with the same window, heads, dimensions and types form a group; a block number is valid
// for all layers and heads of its group. Addresses are head-major:
//   lane(layer, K|V, head) + block * slab,
// so consecutive numbers are consecutive memory for a head and one sequence is one stream per head.
// The layout inside a slab is that of cpu/kernels.h; scales of int8 have lanes of their own.
//
// Sequences share blocks by reference: a fork copies tables, and only the block that a sequence is
// about to write into is copied if others hold it too (copy on write). Full groups keep every
// position. Window groups drop blocks that no future query can see, less a slack that makes short
// rewinds exact; dropped blocks are taken again, which makes a ring.
//
// A step is a transaction: Reserve takes all blocks, RunCopies fills copies, then Commit makes the
// rows visible or Rollback returns them. Thread-safety: one thread changes tables between steps;
// StepView (step_view.h) is read-only during a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "cpu/kernels.h"
#include "engine/kv/block_pool.h"

namespace kvant::kv {

// Positions per block: two key tiles.
inline constexpr int64_t kBlockTokens = 32;

// Positions that a window group keeps beyond its window, so that rewinds of so many tokens stay
// exact.
inline constexpr int64_t kRewindSlack = 256;

// Positions of a replay's steps at most.
inline constexpr int64_t kReplayTokens = kBlockTokens;

struct GroupShape {
  int64_t window = 0;  // 0 = all positions
  int kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  cpu::KvElement k_type = cpu::KvElement::kF16;
  cpu::KvElement v_type = cpu::KvElement::kF16;
  std::vector<int> layers;  // of the model, ascending
  // Keys (with their queries) and values are multiplied by cpu::KernelTable::rotate before they are
  // stored, and what is attended to is turned back.
  bool rotate_keys = false;
  bool rotate_values = false;

  // Bytes of one position in all layers of the group, scales included.
  uint64_t bytes_per_token() const;
  // The first position that a query at `position` sees.
  int64_t FirstVisible(int64_t position) const;
};

// Where a block's numbers of one layer and head lie: bytes from one block to the next in each lane.
struct SlabBytes {
  explicit SlabBytes(const GroupShape& shape);
  size_t keys;
  size_t values;
  size_t key_scales;  // 0 unless q8
  size_t value_scales;
  size_t total() const { return keys + values + key_scales + value_scales; }
};

// The lanes of one layer and head: block b of the keys is at keys + b * SlabBytes::keys.
struct Lanes {
  std::byte* keys;
  std::byte* values;
  float* key_scales;
  float* value_scales;
};

struct CacheOptions {
  std::vector<GroupShape> groups;
  int64_t context = 0;     // positions of a sequence
  int64_t chunk = 0;       // most positions of one step
  int64_t sequences = 1;   // that the pools have room for when nothing is shared
  uint64_t bytes_max = 0;  // of blocks in use; 0 = what the pools hold
  bool commit = false;     // touch all memory at once
  bool poison = false;     // fill freed blocks with NaN, so that reading them shows
};

// Blocks that hold so many positions.
constexpr int64_t BlocksFor(int64_t positions) {
  return (positions + kBlockTokens - 1) / kBlockTokens;
}

struct TableEntry {
  int64_t number;  // the block holds positions [number * kBlockTokens, ...)
  BlockId id;
};

// The blocks that one sequence holds in a group.
struct BlockTable {
  int64_t first_position = 0;       // those before it were dropped behind the window
  std::vector<TableEntry> entries;  // by number; there are gaps where positions were pruned
  int64_t first_block() const { return first_position / kBlockTokens; }
  int64_t end_block() const { return entries.empty() ? first_block() : entries.back().number + 1; }
};

struct PositionRange {
  int64_t begin;
  int64_t end;
};

// The positions [begin, end) from which on the table of a sequence with `length` positions may hold
// them. Where the cache is what its tokens alone give, it holds all that the next token sees; after
// moves positions before that may be missing.
PositionRange FirstPositions(const GroupShape& shape, int64_t length, bool plain);

struct Sequence {
  int64_t length = 0;                 // the next position
  int64_t reserved = 0;               // positions that have blocks for the step under way
  bool replaying = false;             // only window groups are written; see BeginReplay
  std::vector<BlockTable> tables;     // by group
  std::vector<PositionRange> pruned;  // ascending, not adjacent; no query sees these

  int64_t pruned_before(int64_t position) const;
};

// Tokens that a sequence is about to take in.
struct Growth {
  const Sequence* sequence;
  int64_t tokens;
};

// A block that must be copied before it is written into.
struct BlockCopy {
  int group;
  BlockId from;
  BlockId to;
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

class Cache {
 public:
  // kOutOfMemory if the address space cannot be reserved. Memory is committed when written.
  static Result<Cache> Create(const CacheOptions& options);

  // Blocks that a group needs for one sequence at most.
  static int64_t BlocksNeeded(const GroupShape& shape, int64_t context, int64_t chunk);

  // Blocks that a window group has beyond those, so that a sequence can be computed again beside
  // what it holds (BeginReplay).
  static int64_t BlocksForReplay(const GroupShape& shape, int64_t context);

  // Bytes of the pools when full, without what replays take for a while; with it where the memory
  // is committed at once.
  static uint64_t BytesNeeded(const CacheOptions& options);

  Sequence NewSequence() const;

  // Whether sequences can all grow in steps of at most `piece` positions each, before any of them
  // does. kContextFull; kOutOfMemory with the bytes needed and free, how many of the sequences
  // would fit, and how many tokens of each. What the reclaim function gives up for it is gone.
  Status CheckRoom(std::span<const Growth> growths, int64_t piece);

  // Takes blocks for `tokens` more positions in every group, and marks copies of blocks that others
  // hold too. kContextFull beyond the context, kOutOfMemory without free blocks; the sequence holds
  // the same positions then.
  Status Reserve(Sequence& sequence, int64_t tokens);

  // The copies that Reserve marked, which must be made before the step or the next operation.
  // Members of a team each make their share; ClearCopies follows when all are done.
  std::span<const BlockCopy> copies() const { return copies_; }
  void RunCopies(int member, int members);
  void ClearCopies();

  void Commit(Sequence& sequence);
  void Rollback(Sequence& sequence);

  // Keeps the first `length` positions. kInvalid beyond the sequence; kNotSupported where a window
  // group no longer holds what the next token needs; nothing changes then.
  Status Rewind(Sequence& sequence, int64_t length);

  // The shortest length to which Rewind can go back, besides 0.
  int64_t RewindLimit(const Sequence& sequence) const;

  // Empties the window groups, whose positions from `position` on, a multiple of kBlockTokens, are
  // then computed again up to the length that the sequence has now, by steps that leave the full
  // groups alone; the last of them ends the replay.
  void BeginReplay(Sequence& sequence, int64_t position);
  void EndReplay(Sequence& sequence) { sequence.replaying = false; }

  // No query sees the positions [begin, end) any more; others keep theirs. Blocks in the range are
  // dropped, no data is touched. kInvalid unless 0 <= begin <= end <= length.
  Status Prune(Sequence& sequence, int64_t begin, int64_t end);

  // `copy`, which is empty, holds the same positions as `sequence` afterwards.
  void Fork(const Sequence& sequence, Sequence& copy);

  void Free(Sequence& sequence);

  // Room for the positions from `end` on to move to `begin`: the tables that will hold them, by
  // group. Where all of them are there it is the sequence's own table, made private (RunCopies must
  // follow); behind a window it is a new one. kOutOfMemory without free blocks.
  Result<std::vector<BlockTable>> PrepareMove(Sequence& sequence, int64_t begin, int64_t end);
  // Takes these tables over when the rows have moved.
  void FinishMove(Sequence& sequence, std::vector<BlockTable> tables, int64_t distance);

  // Gives an empty sequence `length` positions, in each group from first_positions[group] on, whose
  // rows are to be filled from elsewhere. kContextFull, kOutOfMemory; it stays empty then.
  Status Adopt(Sequence& sequence, int64_t length, std::span<const int64_t> first_positions);

  // A block with one reference, to be filled from elsewhere. kOutOfMemory without free blocks.
  Result<BlockId> TakeBlock(int group, BlockId previous);
  // References of a block that something beside tables holds, such as an index of prefixes.
  void AddReference(int group, BlockId block);
  void Release(int group, BlockId block);
  int references(int group, BlockId block) const;
  // Called when no block is free or the budget is spent; returns whether it released any block.
  void SetReclaim(std::function<bool()> reclaim) { reclaim_ = std::move(reclaim); }

  // Called with a line for every block that is taken, copied or dropped behind a window; empty =
  // nobody.
  using Log = std::function<void(std::string_view line)>;
  void SetLog(Log log) { log_ = std::move(log); }

  // The invariants: every block is free or has as many references as the tables of `sequences` and
  // `others(group, block)` say, tables are ascending and cover what their sequence may see. Names
  // the first one broken.
  Status Check(std::span<const Sequence* const> sequences,
               const std::function<int(int group, BlockId block)>& others) const;

  // The part of Check that concerns one sequence.
  Status CheckTables(const Sequence& sequence) const;

  int group_of_layer(int layer) const { return layer_places_[static_cast<size_t>(layer)].group; }
  int groups() const { return static_cast<int>(groups_.size()); }
  const GroupShape& shape(int group) const { return groups_[static_cast<size_t>(group)].shape; }
  const SlabBytes& slab(int group) const { return groups_[static_cast<size_t>(group)].slab; }
  Lanes LanesOf(int layer, int head) const;
  int64_t context() const { return context_; }
  int64_t sequences() const { return sequences_; }
  uint64_t bytes_used() const { return bytes_used_; }
  uint64_t bytes_max() const { return bytes_max_; }
  CacheStats stats() const;

 private:
  struct Group {
    GroupShape shape;
    SlabBytes slab;
    BlockPool pool;
    AlignedBuffer memory;
    uint64_t block_bytes;  // of all layers and heads
    // Offsets in the memory of one layer: heads times the lane of each kind.
    size_t key_lane, value_lane, key_scale_lane, value_scale_lane;
    size_t layer_bytes;
    int64_t committed = 0;
    uint64_t dropped = 0;
  };
  struct LayerPlace {
    int group = -1;
    int index = 0;  // among the layers of the group
  };

  Status Take(int group, BlockId previous, BlockId* block);
  Status MakePrivate(int group, BlockTable& table, int64_t begin);
  int64_t BlocksToGrow(int group, std::span<const Growth> growths, int64_t tokens_most,
                       int64_t piece);
  int64_t RingsToGrow(int group, std::span<const Growth> growths, int64_t tokens_most,
                      int64_t piece);
  uint64_t BytesToGrow(std::span<const Growth> growths, int64_t tokens_most, int64_t piece,
                       bool* fits);
  Status ReserveGroup(int group, Sequence& sequence, int64_t end);
  Status CopyOnWrite(int group, TableEntry& entry);
  void ReleaseBlock(int group, BlockId block);
  void Fill(const Group& group, BlockId block, int byte);
  void Shrink(int group, BlockTable& table, int64_t positions);
  void DropBehindWindow(int group, BlockTable& table, int64_t length);
  Lanes LanesIn(const Group& group, size_t layer_index, size_t head) const;

  int64_t context_ = 0;
  int64_t sequences_ = 0;
  bool poison_ = false;
  uint64_t bytes_max_ = 0;
  uint64_t bytes_used_ = 0;
  uint64_t bytes_peak_ = 0;
  uint64_t bytes_written_ = 0;
  uint64_t bytes_copied_ = 0;
  uint64_t blocks_taken_ = 0;
  uint64_t blocks_copied_ = 0;
  std::vector<Group> groups_;
  std::vector<LayerPlace> layer_places_;
  std::vector<BlockCopy> copies_;
  std::vector<BlockId> tails_;  // of the growths that are being counted
  std::vector<int> mentions_;   // by block: how many of their tables hold it
  std::function<bool()> reclaim_;
  Log log_;
};

}  // namespace kvant::kv
