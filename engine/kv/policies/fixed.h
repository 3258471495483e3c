// Groups of cross attention: keys and values that an encoder's output gives a decoder, written once
// and owned by a source. Every row sees all positions of the source, whatever the length of its
// sequence. A sequence's table refers to the source's blocks: passes take and write nothing,
// rewinds (to 0, too) and pruning keep them, forks and beams share them, and they become free with
// their last holder. See Ledger::NewSource.
#pragma once

#include "engine/kv/accounting/policy.h"

namespace kvant::kv {

class Fixed : public Policy {
 public:
  static constexpr std::string_view kName = "fixed";
  // `longest`: positions of the longest source; 0: as many as the context has.
  explicit Fixed(int64_t longest) : longest_(longest) {}

  std::string_view name() const override { return kName; }
  std::string Describe() const override { return "all positions of a source"; }
  Holds holds() const override { return Holds::kSource; }

  int64_t Needed(int64_t context, int64_t /*chunk*/) const override {
    return BlocksFor(longest_ > 0 ? longest_ : context);
  }
  int64_t NeededForReplay(int64_t /*context*/) const override { return 0; }
  int64_t RoomFor(const GroupBlocks& /*blocks*/, GroupId /*group*/,
                  const RoomQuestion& /*question*/) const override {
    return 0;
  }

  int64_t FirstVisible(int64_t /*position*/) const override { return 0; }
  int64_t LookBack() const override { return 0; }
  PositionRange FirstPositions(int64_t /*length*/, Origin /*origin*/) const override {
    return {0, 1};
  }

  Status Reserve(GroupBlocks& /*blocks*/, BlockTable& /*table*/, int64_t /*length*/,
                 int64_t /*end*/) const override {
    return {};
  }
  uint64_t Commit(GroupBlocks& /*blocks*/, BlockTable& /*table*/,
                  int64_t /*length*/) const override {
    return 0;
  }
  void Rollback(GroupBlocks& /*blocks*/, BlockTable& /*table*/) const override {}

  int64_t RewindLimit(const BlockTable& /*table*/) const override { return 0; }
  bool CanRewindTo(const BlockTable& /*table*/, int64_t /*length*/) const override { return true; }
  void RewindTo(GroupBlocks& /*blocks*/, BlockTable& /*table*/, int64_t /*length*/) const override {
  }
  int64_t ReplayFrom(const BlockTable& /*table*/, int64_t wanted) const override { return wanted; }
  void BeginReplay(GroupBlocks& /*blocks*/, BlockTable& /*table*/,
                   int64_t /*position*/) const override {}
  Status CheckPrune() const override { return {}; }
  void Prune(GroupBlocks& /*blocks*/, BlockTable& /*table*/,
             const Sequence& /*sequence*/) const override {}
  void Free(GroupBlocks& blocks, BlockTable& table) const override;
  Status TakeSource(GroupBlocks& blocks, BlockTable& table, int64_t length) const override;
  Status Adopt(GroupBlocks& /*blocks*/, BlockTable& /*table*/, int64_t /*first_position*/,
               int64_t /*length*/) const override {
    return {};
  }

  Status PrepareMove(GroupBlocks& /*blocks*/, BlockTable& /*from*/, const Move& /*move*/,
                     BlockTable& /*to*/) const override {
    return {};
  }
  void AbandonMove(GroupBlocks& /*blocks*/, const BlockTable& /*from*/, const Move& /*move*/,
                   BlockTable& /*to*/) const override {}
  void FinishMove(GroupBlocks& /*blocks*/, BlockTable& /*table*/,
                  const BlockTable& /*to*/) const override {}

  Status Check(const BlockTable& table, const Sequence& sequence) const override;

 private:
  int64_t longest_;
};

}  // namespace kvant::kv
