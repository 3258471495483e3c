// What a window sees, keeps and needs.
#include "engine/kv/policies/window.h"

#include <algorithm>

#include <fmt/format.h>

namespace kvant::kv {

std::string Window::Describe() const { return fmt::format("window {}", window_); }

int64_t Window::FirstVisible(int64_t position) const {
  return std::max<int64_t>(0, position - window_ + 1);
}

int64_t Window::FirstKept(int64_t length) const {
  return std::max<int64_t>(0, FirstVisible(length) - kRewindSlack) / kBlockTokens * kBlockTokens;
}

int64_t Window::Needed(int64_t context, int64_t chunk) const {
  // Before a pass the table holds the window and the slack; the pass adds `chunk` positions before
  // anything is dropped. The first of all these positions may be the last one of its block.
  const int64_t ring = BlocksFor(window_ + kRewindSlack + chunk - 1 + kBlockTokens - 1);
  return std::min(BlocksFor(context), ring);
}

int64_t Window::NeededForReplay(int64_t context) const {
  // Passes end where blocks do (ReplayPiece): before a whole block is computed the table reaches
  // back over window and slack from its beginning.
  return std::min(BlocksFor(context), BlocksFor(window_ - 1 + kRewindSlack) + 1);
}

PositionRange Window::FirstPositions(int64_t length, Origin origin) const {
  // After a move or an import, positions that the window would see may be missing.
  return {0, (origin == Origin::kTokens ? FirstVisible(length) : length) + 1};
}

int64_t Window::RewindLimit(const BlockTable& table) const {
  return table.first_position == 0 ? 0 : table.first_position + window_ - 1;
}

void Window::BeginReplay(GroupBlocks& blocks, BlockTable& table, int64_t position) const {
  blocks.Shrink(table, 0);
  table.first_position = position;
  table.length = position;
}

// A step of several passes frees blocks behind the window as it goes on. So there are two upper
// bounds, of which the smaller counts: all new blocks, as if nothing were freed, and the largest
// ring of each sequence, less the blocks that these sequences alone hold.
int64_t Window::RoomFor(const GroupBlocks& blocks, int group, const RoomQuestion& question) const {
  const int64_t count = NewBlocks(blocks, group, question);
  if (count <= blocks.pool().free() && !blocks.limited()) return count;
  return std::min(count, RingBlocks(blocks, group, question));
}

// The sum of the largest rings of the sequences, though they may not be largest at the same time,
// less the blocks that these sequences alone hold now.
int64_t Window::RingBlocks(const GroupBlocks& blocks, int group,
                           const RoomQuestion& question) const {
  std::vector<int>& mentions = *question.mentions;  // by block: how many of their tables hold it
  mentions.assign(static_cast<size_t>(blocks.pool().capacity()), 0);
  for (const Growth& growth : question.growths) {
    for (const TableEntry& entry : growth.sequence->tables[static_cast<size_t>(group)].entries) {
      ++mentions[static_cast<size_t>(entry.id)];
    }
  }
  const auto theirs = [&](BlockId id) {
    return mentions[static_cast<size_t>(id)] == blocks.references(id);
  };
  int64_t count = 0;
  for (BlockId id = 0; id < blocks.pool().capacity(); ++id) {
    count -= mentions[static_cast<size_t>(id)] > 0 && theirs(id) ? 1 : 0;
  }
  for (const Growth& growth : question.growths) {
    const Sequence& sequence = *growth.sequence;
    const BlockTable& table = sequence.tables[static_cast<size_t>(group)];
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
