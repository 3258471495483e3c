// Sliding windows: a query at position p sees [p - window + 1, p]. Blocks that lie more than
// kRewindSlack positions before what the next query sees are dropped and taken again, so that a
// sequence holds a ring of blocks.
#pragma once

#include "engine/kv/policies/by_position.h"

namespace kvant::kv {

class Window final : public ByPosition {
 public:
  static constexpr std::string_view kName = "window";
  explicit Window(int64_t window) : window_(window) {}

  std::string_view name() const override { return kName; }
  std::string Describe() const override;

  int64_t Needed(int64_t context, int64_t chunk) const override;
  int64_t NeededForReplay(int64_t context) const override;
  int64_t RoomFor(const GroupBlocks& blocks, int group,
                  const RoomQuestion& question) const override;

  int64_t FirstVisible(int64_t position) const override;
  int64_t LookBack() const override { return window_ - 1; }
  PositionRange FirstPositions(int64_t length, Origin origin) const override;

  int64_t RewindLimit(const BlockTable& table) const override;
  int64_t ReplayFrom(const BlockTable& /*table*/, int64_t wanted) const override { return wanted; }
  void BeginReplay(GroupBlocks& blocks, BlockTable& table, int64_t position) const override;

 protected:
  int64_t FirstKept(int64_t length) const override;

 private:
  int64_t RingBlocks(const GroupBlocks& blocks, int group, const RoomQuestion& question) const;

  int64_t window_;
};

}  // namespace kvant::kv
