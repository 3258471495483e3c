// Ledger::CheckRoom: whether sequences can grow, before any of them does. Counts the most blocks
// that each group can need, and where that is too much, how much would fit.
#include <algorithm>

#include "base/counted.h"
#include "base/result.h"
#include "engine/kv/accounting/ledger.h"

namespace kvant::kv {

Ledger::Room Ledger::RoomFor(const RoomQuestion& question) const {
  Room room;
  for (const GroupId group : group_ids()) {
    const int64_t count = policy(group).RoomFor(blocks(group), group, question);
    if (count > blocks(group).pool().free()) {
      room.fits = false;
      room.lacking = group;
    }
    room.bytes += static_cast<uint64_t>(std::max<int64_t>(0, count)) * blocks(group).block_bytes();
  }
  if (bytes_max() != 0 && bytes_used() + room.bytes > bytes_max()) room.fits = false;
  return room;
}

Status Ledger::CheckRoom(std::span<const Growth> growths, int64_t piece) {
  int64_t longest = 0;
  for (const Growth& growth : growths) {
    longest = std::max(longest, growth.tokens);
    if (growth.sequence->length + growth.tokens > limits_.context) {
      return MakeError(ErrorCode::kContextFull, "{} and {} more exceed the context of {}",
                       Counted(growth.sequence->length, "token"), growth.tokens, limits_.context);
    }
  }
  const RoomQuestion question{growths, longest, piece, &tails_, &mentions_};
  Room room = RoomFor(question);
  while (!room.fits && budget_->reclaim && budget_->reclaim(room.lacking)) {
    room = RoomFor(question);
  }
  return room.fits ? Status() : NoRoom(question, room.bytes);
}

Error Ledger::NoRoom(const RoomQuestion& question, uint64_t bytes) const {
  const std::span<const Growth> growths = question.growths;
  const auto fits = [&](std::span<const Growth> some, int64_t tokens) {
    RoomQuestion other = question;
    other.growths = some;
    other.tokens_most = tokens;
    return RoomFor(other).fits;
  };
  size_t sequences = growths.size();
  while (sequences > 0 && !fits(growths.first(sequences), question.tokens_most)) --sequences;
  int64_t tokens = 0;
  for (int64_t end = question.tokens_most; end - tokens > 1;) {
    const int64_t middle = tokens + (end - tokens) / 2;
    (fits(growths, middle) ? tokens : end) = middle;
  }
  uint64_t held = 0;
  for (const Group& group : groups_) {
    held += static_cast<uint64_t>(group.blocks.pool().capacity()) * group.blocks.block_bytes();
  }
  if (bytes_max() != 0) held = std::min(held, bytes_max());
  return MakeError(ErrorCode::kOutOfMemory,
                   "KV cache: {} bytes are needed for {} of {}, {} of {} are free; {} of the "
                   "sequences, or {} of each, would fit",
                   bytes, Counted(question.tokens_most, "more token"),
                   Counted(growths.size(), "sequence"), held - std::min(held, bytes_used()), held,
                   sequences, Counted(tokens, "token"));
}

}  // namespace kvant::kv
