// The blocks of the KV cache that a sequence holds in each group, as numbers, and which positions
// in them are its own.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv/accounting/block_pool.h"

namespace kvant::kv {

// Positions per block: two key tiles.
inline constexpr int64_t kBlockTokens = 32;

// The number of blocks that hold `positions` positions.
constexpr int64_t BlocksFor(int64_t positions) {
  return (positions + kBlockTokens - 1) / kBlockTokens;
}

// The positions [begin, end).
struct PositionRange {
  int64_t begin;
  int64_t end;
};

// A group of cache layers, by its place in the cache.
enum class GroupId : int32_t {};
constexpr int32_t format_as(GroupId id) { return static_cast<int32_t>(id); }  // for fmt

struct TableEntry {
  // The block holds the kBlockTokens positions from number * kBlockTokens on; in a state group, the
  // state after `number` positions.
  int64_t number;
  BlockId id;
};

// The blocks that one sequence holds in a group, ascending by number. What they hold depends on the
// group's policy:
// - full and window groups: rows of positions [first_position, length), by number, with gaps where
//   positions were pruned;
// - fixed groups: rows of the source's positions [0, length), whatever the sequence's own length;
// - state groups: states. The last entry is the current state, after `length` positions; those
//   before it are checkpoints. A table without entries is at the state before any position.
struct BlockTable {
  int64_t first_position = 0;
  // The table's own length. It is the sequence's, except in fixed groups, and during a replay,
  // where tables that need no replay stay as long as they were.
  int64_t length = 0;
  std::vector<TableEntry> entries;
  int64_t first_block() const { return first_position / kBlockTokens; }
  int64_t end_block() const { return entries.empty() ? first_block() : entries.back().number + 1; }
};

struct Sequence {
  int64_t length = 0;    // the next position
  int64_t reserved = 0;  // positions from `length` on that the pass under way has blocks for
  int64_t replay_end =
      0;  // where the replay under way ends (Ledger::BeginReplay); 0: there is none
  IdVector<GroupId, BlockTable> tables;
  std::vector<PositionRange> pruned;  // ascending, not adjacent; no query sees these

  bool replaying() const { return replay_end > 0; }
};

// A text or frames that an encoder-decoder model has read before it writes, such as an audio file:
// blocks of the fixed groups, which are filled once and which any number of sequences then refer
// to.
struct Source {
  IdVector<GroupId, BlockTable> tables;  // empty but for fixed groups
};

// Tokens that a sequence is about to take in.
struct Growth {
  const Sequence* sequence;
  int64_t tokens;
};

// A block that must be copied before it is written into.
struct BlockCopy {
  GroupId group;
  BlockId from;
  BlockId to;
};

}  // namespace kvant::kv
