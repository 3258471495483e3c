// How long a group of cache layers keeps what it is given: what a table holds at each length, what
// a step takes, what may be given up, and how far back one can go. Policies know blocks as numbers.
//
// A new policy is a file in engine/kv/policies and a line in its policy_list.h. Nobody outside asks
// which one a group has: what differs is a function below. Policies are immutable and may be
// shared.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/kv/accounting/group_blocks.h"
#include "engine/kv/accounting/tables.h"

namespace kvant::kv {

// Positions that a window keeps beyond what is seen, so that rewinds of so many tokens stay exact.
inline constexpr int64_t kRewindSlack = 256;

// Positions that a replay computes in one pass at most.
inline constexpr int64_t kReplayTokens = kBlockTokens;

// What CheckRoom is about to do, and memory for counting it without allocations.
struct RoomQuestion {
  std::span<const Growth> growths;
  int64_t tokens_most;  // each grows by its tokens, or by so many where that is less
  int64_t piece;        // in passes of so many tokens each at most
  std::vector<BlockId>* tails;
  std::vector<int>* mentions;

  // The length to which a sequence grows.
  int64_t EndOf(const Growth& growth) const {
    return growth.sequence->length + std::min(growth.tokens, tokens_most);
  }
};

// Tokens from `end` on move to `begin`; the sequence has `length` before that.
struct Move {
  int64_t begin;
  int64_t end;
  int64_t length;
  int64_t distance() const { return end - begin; }
};

// What the blocks of a group hold.
enum class Holds : uint8_t {
  kPositions,  // rows of the sequence's positions; the blocks that are full may be shared by prefix
  kSource,     // rows of a source's positions
  kState,      // no rows
};

// Where a table's rows come from.
enum class Origin : uint8_t {
  kTokens,   // they are what the tokens of the sequence alone give
  kChanged,  // positions were pruned or moved, or the rows come from elsewhere
};

class Policy {
 public:
  virtual ~Policy() = default;

  virtual std::string_view name() const = 0;
  // For people: "all positions", "window 33".
  virtual std::string Describe() const = 0;
  virtual Holds holds() const = 0;

  // ---- How much ----

  // Blocks that one sequence needs at most, with passes of at most `chunk` tokens: exactly so many
  // at some length, but for what the context bounds.
  virtual int64_t Needed(int64_t context, int64_t chunk) const = 0;
  // Blocks beyond those, so that a sequence can be computed again beside what it holds.
  virtual int64_t NeededForReplay(int64_t context) const = 0;
  // Blocks that the growths take at most beyond what is held now; may be negative where more falls
  // behind than is taken.
  virtual int64_t RoomFor(const GroupBlocks& blocks, int group,
                          const RoomQuestion& question) const = 0;

  // ---- What is seen ----

  // The first position that a query at `position` sees.
  virtual int64_t FirstVisible(int64_t position) const = 0;
  // Positions before its own that a layer's row depends on through this layer at most; how far a
  // replay must begin before what it is for, per layer.
  virtual int64_t LookBack() const = 0;
  // What first_position may be where the sequence has `length` positions.
  virtual PositionRange FirstPositions(int64_t length, Origin origin) const = 0;

  // ---- A step: Reserve, then Commit or Rollback ----

  // Blocks for the positions [length, end), which nobody else holds; none where the table is ahead.
  virtual Status Reserve(GroupBlocks& blocks, BlockTable& table, int64_t length,
                         int64_t end) const = 0;
  // The step has reached `length`. Gives up what no later query sees; returns the bytes written.
  virtual uint64_t Commit(GroupBlocks& blocks, BlockTable& table, int64_t length) const = 0;
  virtual void Rollback(GroupBlocks& blocks, BlockTable& table) const = 0;

  // ---- Between steps ----

  // The shortest length to which RewindTo can go back and from which on it can to every one.
  virtual int64_t RewindLimit(const BlockTable& table) const = 0;
  virtual bool CanRewindTo(const BlockTable& table, int64_t length) const = 0;
  virtual void RewindTo(GroupBlocks& blocks, BlockTable& table, int64_t length) const = 0;
  // The largest position up to `wanted` from which a replay may go on.
  virtual int64_t ReplayFrom(const BlockTable& table, int64_t wanted) const = 0;
  virtual void BeginReplay(GroupBlocks& blocks, BlockTable& table, int64_t position) const = 0;
  // Keeps what RewindTo needs to come back to the table's length.
  virtual void Checkpoint(GroupBlocks& /*blocks*/, BlockTable& /*table*/) const {}
  // kNotSupported where positions leave a trace that cannot be taken back.
  virtual Status CheckPrune() const = 0;
  virtual void Prune(GroupBlocks& blocks, BlockTable& table, const Sequence& sequence) const = 0;
  // Blocks for a source of so many positions, in groups that have sources.
  virtual Status TakeSource(GroupBlocks& /*blocks*/, BlockTable& /*table*/,
                            int64_t /*length*/) const {
    return {};
  }
  // Gives up everything.
  virtual void Free(GroupBlocks& blocks, BlockTable& table) const = 0;
  // Blocks of zeros for [first_position, length), to be filled from elsewhere.
  virtual Status Adopt(GroupBlocks& blocks, BlockTable& table, int64_t first_position,
                       int64_t length) const = 0;

  // Tables for moved tokens: `to` is `from` itself, made private, or has blocks of its own.
  virtual Status PrepareMove(GroupBlocks& blocks, BlockTable& from, const Move& move,
                             BlockTable& to) const = 0;
  virtual void AbandonMove(GroupBlocks& blocks, const BlockTable& from, const Move& move,
                           BlockTable& to) const = 0;
  virtual void FinishMove(GroupBlocks& blocks, BlockTable& table, const BlockTable& to) const = 0;

  // ---- Invariants ----

  // kCorrupt names what is wrong, without the group.
  virtual Status Check(const BlockTable& table, const Sequence& sequence) const = 0;
};

}  // namespace kvant::kv
