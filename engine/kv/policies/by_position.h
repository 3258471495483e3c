// Full and window groups share this part: a table holds rows by position, from some position on, in
// blocks that sequences may share.
#pragma once

#include "engine/kv/accounting/policy.h"

namespace kvant::kv {

class ByPosition : public Policy {
 public:
  Holds holds() const override { return Holds::kPositions; }

  Status Reserve(GroupBlocks& blocks, BlockTable& table, int64_t length,
                 int64_t end) const override;
  uint64_t Commit(GroupBlocks& blocks, BlockTable& table, int64_t length) const override;
  void Rollback(GroupBlocks& blocks, BlockTable& table) const override;

  bool CanRewindTo(const BlockTable& table, int64_t length) const override;
  void RewindTo(GroupBlocks& blocks, BlockTable& table, int64_t length) const override;
  Status CheckPrune() const override { return {}; }
  void Prune(GroupBlocks& blocks, BlockTable& table, const Sequence& sequence) const override;
  void Free(GroupBlocks& blocks, BlockTable& table) const override;
  Status Adopt(GroupBlocks& blocks, BlockTable& table, int64_t first_position,
               int64_t length) const override;

  Status PrepareMove(GroupBlocks& blocks, BlockTable& from, const Move& move,
                     BlockTable& to) const override;
  void AbandonMove(GroupBlocks& blocks, const BlockTable& from, const Move& move,
                   BlockTable& to) const override;
  void FinishMove(GroupBlocks& blocks, BlockTable& table, const BlockTable& to) const override;

  Status Check(const BlockTable& table, const Sequence& sequence) const override;

 protected:
  // The first position that a table of `length` positions keeps, at the beginning of a block.
  virtual int64_t FirstKept(int64_t length) const = 0;
  // Finds, from `at` on, the pass of `piece` positions before which a table holds the most. The
  // pass begins at the range's begin; the next one is looked for from the range's end on.
  virtual PositionRange FullestPass(int64_t at, int64_t piece) const { return {at, at + piece}; }

  // The blocks that the growths take, copies of shared ones included, if nothing is given up.
  int64_t NewBlocks(const GroupBlocks& blocks, GroupId group, const RoomQuestion& question) const;
  // The most blocks that a table holds while its sequence grows over `growth` in pieces and gives
  // up after each piece what it need not keep. Blocks from number `first_new` on are new; of the
  // older ones, old_from(number) says how many count that have this number or a higher one.
  template <class OldFrom>
  int64_t Peak(PositionRange growth, int64_t piece, int64_t first_new,
               const OldFrom& old_from) const {
    int64_t peak = 0;
    for (int64_t at = growth.begin; at < growth.end;) {
      const PositionRange pass = FullestPass(at, piece);
      const int64_t kept = FirstKept(at) / kBlockTokens;
      const int64_t end = std::min(pass.begin + piece, growth.end);
      peak = std::max(peak, BlocksFor(end) - std::max(first_new, kept) + old_from(kept));
      at = pass.end;
    }
    return peak;
  }
};

}  // namespace kvant::kv
