#include "engine/kv/policies/ring.h"

#include <algorithm>
#include <vector>

namespace kvant::kv {

int64_t Ring::FirstKept(int64_t length) const {
  return FirstVisible(std::max<int64_t>(0, length - kRewindSlack)) / kBlockTokens * kBlockTokens;
}

PositionRange Ring::FirstPositions(int64_t length, Origin origin) const {
  // After a move or an import, positions that the next query would see may be missing.
  return {0, (origin == Origin::kTokens ? FirstVisible(length) : length) + 1};
}

void Ring::BeginReplay(GroupBlocks& blocks, BlockTable& table, int64_t position) const {
  blocks.Shrink(table, 0);
  table.first_position = position;
  table.length = position;
}

// A step of several passes frees blocks as it goes on. So there are two upper bounds, of which the
// smaller counts: all new blocks, as if nothing were freed, and the largest ring of each growing
// sequence, less the blocks that the growing sequences alone hold.
int64_t Ring::RoomFor(const GroupBlocks& blocks, GroupId group,
                      const RoomQuestion& question) const {
  const int64_t count = NewBlocks(blocks, group, question);
  if (count <= blocks.pool().free() && !blocks.limited()) return count;
  return std::min(count, RingBlocks(blocks, group, question));
}

// The sum of the largest rings of the growing sequences, though they may not be largest at one
// time, less the blocks that the growing sequences alone hold now.
int64_t Ring::RingBlocks(const GroupBlocks& blocks, GroupId group,
                         const RoomQuestion& question) const {
  std::vector<int>& mentions = *question.mentions;  // by block: how many of their tables hold it
  mentions.assign(static_cast<size_t>(blocks.pool().capacity()), 0);
  for (const Growth& growth : question.growths) {
    for (const TableEntry& entry : growth.sequence->tables[group].entries) {
      ++mentions[static_cast<size_t>(entry.id)];
    }
  }
  const auto theirs = [&](BlockId id) {
    return mentions[static_cast<size_t>(id)] == blocks.references(id);
  };
  int64_t count = 0;
  for (const BlockId id : blocks.pool().ids()) {
    count -= mentions[static_cast<size_t>(id)] > 0 && theirs(id) ? 1 : 0;
  }
  for (const Growth& growth : question.growths) {
    const Sequence& sequence = *growth.sequence;
    const BlockTable& table = sequence.tables[group];
    const int64_t tail = sequence.length / kBlockTokens;
    // The block that the sequence writes into next counts in any case: if others hold it too, the
    // sequence gets a copy.
    const auto old_from = [&](int64_t number) {
      return std::count_if(table.entries.begin(), table.entries.end(), [&](const TableEntry& e) {
        return e.number >= number && (theirs(e.id) || e.number == tail);
      });
    };
    const int64_t end = question.EndOf(growth);
    count += end == sequence.length ? old_from(0)
                                    : Peak({sequence.length, end}, question.piece,
                                           std::max(table.end_block(), tail), old_from);
  }
  return count;
}

}  // namespace kvant::kv
