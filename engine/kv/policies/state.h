// Recurrent states: one block is the state of all layers of the group after some position.
//
// A pass reads the block of the length before it and writes another one, so that Rollback has the
// old state and nothing need be copied on write; Commit releases the old block. A checkpoint is one
// more entry of the table with the block of some length. A rewind goes to a checkpoint; for any
// other length the tokens after the nearest checkpoint before it are replayed, as with windows.
#pragma once

#include "engine/kv/accounting/policy.h"

namespace kvant::kv {

class State final : public Policy {
 public:
  static constexpr std::string_view kName = "state";
  // `checkpoints`: how many a table may have, and Needed counts; 0: any number, none is counted.
  explicit State(int64_t checkpoints) : checkpoints_(checkpoints) {}

  // The block that a pass after `length` positions reads, kNoBlock for the state before any
  // position; and the one that it writes.
  static BlockId ReadBlock(const BlockTable& table, int64_t length);
  static BlockId WriteBlock(const BlockTable& table) { return table.entries.back().id; }
  // The block with the state after just `length` positions, kNoBlock where the table has none.
  static BlockId BlockAt(const BlockTable& table, int64_t length);

  std::string_view name() const override { return kName; }
  std::string Describe() const override { return "one state"; }
  Holds holds() const override { return Holds::kState; }

  // The current block, the one that a pass writes, and the checkpoints.
  int64_t Needed(int64_t /*context*/, int64_t /*chunk*/) const override { return 2 + checkpoints_; }
  int64_t NeededForReplay(int64_t /*context*/) const override { return 2; }
  int64_t RoomFor(const GroupBlocks& blocks, GroupId group,
                  const RoomQuestion& question) const override;

  // Earlier positions are seen through the state only.
  int64_t FirstVisible(int64_t position) const override { return position; }
  int64_t LookBack() const override { return 0; }  // a replay from a checkpoint is exact at once
  PositionRange FirstPositions(int64_t /*length*/, Origin /*origin*/) const override {
    return {0, 1};
  }

  Status Reserve(GroupBlocks& blocks, BlockTable& table, int64_t length,
                 int64_t end) const override;
  uint64_t Commit(GroupBlocks& blocks, BlockTable& table, int64_t length) const override;
  void Rollback(GroupBlocks& blocks, BlockTable& table) const override;

  int64_t RewindLimit(const BlockTable& table) const override { return table.length; }
  bool CanRewindTo(const BlockTable& table, int64_t length) const override;
  void RewindTo(GroupBlocks& blocks, BlockTable& table, int64_t length) const override;
  int64_t ReplayFrom(const BlockTable& table, int64_t wanted) const override;
  void BeginReplay(GroupBlocks& blocks, BlockTable& table, int64_t position) const override;
  // Where that makes too many checkpoints, gives up the one that leaves the smallest gap for its
  // distance from the present: so distances double, and a replay is about as long as the rewind
  // that needs it.
  void Checkpoint(GroupBlocks& blocks, BlockTable& table) const override;
  bool DropCheckpoint(GroupBlocks& blocks, BlockTable& table) const override;
  Status CheckPrune() const override;
  void Prune(GroupBlocks& /*blocks*/, BlockTable& /*table*/,
             const Sequence& /*sequence*/) const override {}
  void Free(GroupBlocks& blocks, BlockTable& table) const override;
  Status Adopt(GroupBlocks& blocks, BlockTable& table, int64_t first_position,
               int64_t length) const override;

  Status PrepareMove(GroupBlocks& blocks, BlockTable& from, const Move& move,
                     BlockTable& to) const override;
  void AbandonMove(GroupBlocks& /*blocks*/, const BlockTable& /*from*/, const Move& /*move*/,
                   BlockTable& /*to*/) const override {}
  void FinishMove(GroupBlocks& /*blocks*/, BlockTable& /*table*/,
                  const BlockTable& /*to*/) const override {}

  Status Check(const BlockTable& table, const Sequence& sequence) const override;

 private:
  void GiveUp(GroupBlocks& blocks, BlockTable& table, size_t checkpoint) const;

  int64_t checkpoints_;
};

}  // namespace kvant::kv
