// Sliding windows and sections share this part: a query sees the positions from some earlier one
// on, and the policy drops positions more than kRewindSlack before that one. Blocks are taken
// again, so that a sequence holds a ring of them.
#pragma once

#include "engine/kv/policies/by_position.h"

namespace kvant::kv {

class Ring : public ByPosition {
 public:
  int64_t RoomFor(const GroupBlocks& blocks, GroupId group,
                  const RoomQuestion& question) const override;

  int64_t LookBack() const override { return window_ - 1; }
  PositionRange FirstPositions(int64_t length, Origin origin) const override;

  int64_t ReplayFrom(const BlockTable& /*table*/, int64_t wanted) const override { return wanted; }
  void BeginReplay(GroupBlocks& blocks, BlockTable& table, int64_t position) const override;

 protected:
  // `window`: the most positions that a query sees.
  explicit Ring(int64_t window) : window_(window) {}

  int64_t window() const { return window_; }
  int64_t FirstKept(int64_t length) const override;

 private:
  int64_t RingBlocks(const GroupBlocks& blocks, GroupId group, const RoomQuestion& question) const;

  int64_t window_;
};

}  // namespace kvant::kv
