// Every position is kept.
#pragma once

#include "engine/kv/policies/by_position.h"

namespace kvant::kv {

class Full final : public ByPosition {
 public:
  static constexpr std::string_view kName = "full";
  explicit Full(int64_t /*window*/) {}

  std::string_view name() const override { return kName; }
  std::string Describe() const override { return "all positions"; }

  int64_t Needed(int64_t context, int64_t /*chunk*/) const override { return BlocksFor(context); }
  int64_t NeededForReplay(int64_t /*context*/) const override { return 0; }
  int64_t RoomFor(const GroupBlocks& blocks, GroupId group,
                  const RoomQuestion& question) const override {
    return NewBlocks(blocks, group, question);
  }

  int64_t FirstVisible(int64_t /*position*/) const override { return 0; }
  int64_t LookBack() const override { return 0; }  // a replay leaves what is there
  PositionRange FirstPositions(int64_t /*length*/, Origin /*origin*/) const override {
    return {0, 1};
  }

  int64_t RewindLimit(const BlockTable& /*table*/) const override { return 0; }
  int64_t ReplayFrom(const BlockTable& /*table*/, int64_t wanted) const override { return wanted; }
  void BeginReplay(GroupBlocks& /*blocks*/, BlockTable& /*table*/,
                   int64_t /*position*/) const override {}

 protected:
  int64_t FirstKept(int64_t /*length*/) const override { return 0; }
};

}  // namespace kvant::kv
