// How long a group of cache layers keeps positions: what a table holds at each length, which blocks
// a pass takes, which may be given up, and how far a sequence can go back. Policies know blocks as
// numbers only.
//
// A new policy is a file in engine/kv/policies and a line in its policy_list.h. Nobody outside asks
// which one a group has: what differs between them is a function below. Policies are immutable and
// may be shared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/kv/accounting/group_blocks.h"
#include "engine/kv/accounting/tables.h"

namespace kvant::kv {

// Positions that a window keeps beyond what the next query sees, so that a rewind of up to as many
// tokens needs no replay.
inline constexpr int64_t kRewindSlack = 256;

// Positions that a replay on its way to `end` computes in one pass at most: up to the end of a
// block, so that a ring drops a block before it takes the next one.
inline int64_t ReplayPiece(int64_t position, int64_t end) {
  return std::min(end - position, kBlockTokens - position % kBlockTokens);
}

// The growths that CheckRoom asks about.
struct RoomQuestion {
  std::span<const Growth> growths;
  int64_t tokens_most;  // each sequence grows by its tokens, but by no more than this
  int64_t piece;        // tokens of a sequence in one pass, at most
  // Memory for counting, owned by the ledger, so that a question allocates nothing.
  std::vector<BlockId>* tails;
  std::vector<int>* mentions;

  // The length to which the sequence grows.
  int64_t EndOf(const Growth& growth) const {
    return growth.sequence->length + std::min(growth.tokens, tokens_most);
  }
};

// The tokens from `end` on move to `begin`, in a sequence of `length` tokens.
struct Move {
  int64_t begin;
  int64_t end;
  int64_t length;
  int64_t distance() const { return end - begin; }
};

// The contents of a group's blocks.
enum class Holds : uint8_t {
  kPositions,  // rows of the sequence's positions; full blocks can be found by their prefix
  kSource,     // rows of a source's positions
  kState,      // one state of all positions so far, no rows
};

// The origin of a table's rows.
enum class Origin : uint8_t {
  kTokens,   // computed from the tokens of the sequence alone
  kChanged,  // positions were pruned or moved, or the rows were imported
};

class Policy {
 public:
  virtual ~Policy() = default;

  virtual std::string_view name() const = 0;
  // The policy as messages name it: "all positions", "window 33".
  virtual std::string Describe() const = 0;
  virtual Holds holds() const = 0;

  // ---- How much ----

  // The most blocks that one sequence holds at any length, in passes of at most `chunk` tokens.
  // Some length needs all of them, unless the context is too short for it.
  virtual int64_t Needed(int64_t context, int64_t chunk) const = 0;
  // The most tables that hold blocks at one time, with `sequences` sequences.
  virtual int64_t TablesAtOnce(int64_t sequences) const { return sequences; }
  // The blocks that a replay holds while the sequence that it is for keeps its own.
  virtual int64_t NeededForReplay(int64_t context) const = 0;
  // The most blocks that the growths take beyond what is held now. Negative where they drop more
  // than they take.
  virtual int64_t RoomFor(const GroupBlocks& blocks, GroupId group,
                          const RoomQuestion& question) const = 0;

  // ---- What is seen ----

  // The first position that a query at `position` sees.
  virtual int64_t FirstVisible(int64_t position) const = 0;
  // The most positions before its own on which a row of this layer depends: each layer makes a
  // replay begin that much earlier. 0 where a replay leaves the layer's rows alone.
  virtual int64_t LookBack() const = 0;
  // The first position on which a row at `position` depends through `layers` layers of the group,
  // where no other group looks back.
  virtual int64_t DependsFrom(int64_t position, int64_t layers) const {
    return position - layers * LookBack();
  }
  // The range of first_position where the sequence has `length` positions.
  virtual PositionRange FirstPositions(int64_t length, Origin origin) const = 0;

  // ---- A pass: Reserve, then Commit or Rollback ----

  // Gives the table blocks for the positions [length, end), which no other table holds. Does
  // nothing where a replay has left the table longer than `length`.
  virtual Status Reserve(GroupBlocks& blocks, BlockTable& table, int64_t length,
                         int64_t end) const = 0;
  // The pass is done and the sequence has `length` positions. Gives up blocks that no later query
  // sees; returns the bytes that the pass has written.
  virtual uint64_t Commit(GroupBlocks& blocks, BlockTable& table, int64_t length) const = 0;
  virtual void Rollback(GroupBlocks& blocks, BlockTable& table) const = 0;

  // ---- Between passes ----

  // The shortest length such that RewindTo can go to it and to every longer one.
  virtual int64_t RewindLimit(const BlockTable& table) const = 0;
  virtual bool CanRewindTo(const BlockTable& table, int64_t length) const = 0;
  virtual void RewindTo(GroupBlocks& blocks, BlockTable& table, int64_t length) const = 0;
  // The largest position up to `wanted` from which a replay may go on.
  virtual int64_t ReplayFrom(const BlockTable& table, int64_t wanted) const = 0;
  virtual void BeginReplay(GroupBlocks& blocks, BlockTable& table, int64_t position) const = 0;
  // Keeps what RewindTo needs to come back to the table's length.
  virtual void Checkpoint(GroupBlocks& /*blocks*/, BlockTable& /*table*/) const {}
  // Gives up one of the checkpoints; false if there is none.
  virtual bool DropCheckpoint(GroupBlocks& /*blocks*/, BlockTable& /*table*/) const {
    return false;
  }
  // kNotSupported for a state, which cannot forget single positions.
  virtual Status CheckPrune() const = 0;
  virtual void Prune(GroupBlocks& blocks, BlockTable& table, const Sequence& sequence) const = 0;
  // Takes blocks for a source of `length` positions; only groups with sources do anything.
  virtual Status TakeSource(GroupBlocks& /*blocks*/, BlockTable& /*table*/,
                            int64_t /*length*/) const {
    return {};
  }
  // Gives up what only the encoding of a source needs.
  virtual void EndSource(GroupBlocks& /*blocks*/, BlockTable& /*table*/) const {}
  // Gives up all blocks.
  virtual void Free(GroupBlocks& blocks, BlockTable& table) const = 0;
  // Gives an empty table blocks of zeros for [first_position, length), which the caller fills.
  virtual Status Adopt(GroupBlocks& blocks, BlockTable& table, int64_t first_position,
                       int64_t length) const = 0;

  // Makes `to` the table for moved tokens: a copy of `from`, with blocks that no other table holds,
  // or a table with new blocks. AbandonMove gives new blocks back; FinishMove gives `to` to the
  // sequence.
  virtual Status PrepareMove(GroupBlocks& blocks, BlockTable& from, const Move& move,
                             BlockTable& to) const = 0;
  virtual void AbandonMove(GroupBlocks& blocks, const BlockTable& from, const Move& move,
                           BlockTable& to) const = 0;
  virtual void FinishMove(GroupBlocks& blocks, BlockTable& table, const BlockTable& to) const = 0;

  // ---- Invariants ----

  // kCorrupt says what is wrong; the caller adds the number of the group.
  virtual Status Check(const BlockTable& table, const Sequence& sequence) const = 0;
};

}  // namespace kvant::kv
