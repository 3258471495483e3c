// A table of states has a block to read, during a pass one to write, and checkpoints. Its entries
// are ascending by the length whose state they hold; a checkpoint of the current length is the
// entry before the last, with the same number and block.
#include "engine/kv/policies/state.h"

#include <algorithm>

#include "base/check.h"
#include "base/result.h"

namespace kvant::kv {
namespace {

using StateEntries = std::vector<TableEntry>;

// The last entry whose number is at most `length`; entries.end() if there is none.
StateEntries::const_iterator LastUpTo(const StateEntries& entries, int64_t length) {
  auto after =
      std::upper_bound(entries.begin(), entries.end(), length,
                       [](int64_t n, const TableEntry& entry) { return n < entry.number; });
  return after == entries.begin() ? entries.end() : after - 1;
}

// How many entries come before the present state, between passes or during one.
size_t CheckpointsOf(const BlockTable& table) {
  const auto present = LastUpTo(table.entries, table.length);
  return present == table.entries.end() || table.length == 0
             ? 0
             : static_cast<size_t>(present - table.entries.begin());
}

// The checkpoint whose neighbours are closest to each other in proportion to its distance from the
// present. The state before any position is always there, as are the present state and, while the
// table has another one, the last checkpoint.
size_t LeastUseful(const BlockTable& table) {
  const size_t count = CheckpointsOf(table);
  size_t best = 0;
  double smallest = 0;
  for (size_t i = 0; i + 1 < count; ++i) {
    const int64_t before = i == 0 ? 0 : table.entries[i - 1].number;
    const int64_t gap = table.entries[i + 1].number - before;
    const double share =
        static_cast<double>(gap) / static_cast<double>(table.length - table.entries[i].number + 1);
    if (i > 0 && share >= smallest) continue;
    best = i;
    smallest = share;
  }
  return best;
}

void DropFrom(GroupBlocks& blocks, StateEntries& entries, size_t count) {
  for (; entries.size() > count; entries.pop_back()) blocks.Release(entries.back().id);
}

}  // namespace

BlockId State::ReadBlock(const BlockTable& table, int64_t length) {
  const auto found = LastUpTo(table.entries, length);
  return found == table.entries.end() || length == 0 ? kNoBlock : found->id;
}

BlockId State::BlockAt(const BlockTable& table, int64_t length) {
  const auto found = LastUpTo(table.entries, length);
  return found == table.entries.end() || found->number != length ? kNoBlock : found->id;
}

void State::Checkpoint(GroupBlocks& blocks, BlockTable& table) const {
  const size_t count = table.entries.size();
  if (table.length == 0) return;
  const bool is_one = count > 1 && table.entries[count - 2].number == table.length;
  if (is_one) return;
  blocks.AddReference(table.entries.back().id);
  table.entries.push_back(table.entries.back());
  if (checkpoints_ > 0 && static_cast<int64_t>(CheckpointsOf(table)) > checkpoints_) {
    GiveUp(blocks, table, LeastUseful(table));
  }
}

bool State::DropCheckpoint(GroupBlocks& blocks, BlockTable& table) const {
  if (CheckpointsOf(table) == 0) return false;
  GiveUp(blocks, table, LeastUseful(table));
  return true;
}

void State::GiveUp(GroupBlocks& blocks, BlockTable& table, size_t checkpoint) const {
  blocks.Release(table.entries[checkpoint].id);
  table.entries.erase(table.entries.begin() + static_cast<std::ptrdiff_t>(checkpoint));
}

// ---- Passes -------------------------------------------------------------------------------------

Status State::Reserve(GroupBlocks& blocks, BlockTable& table, int64_t length, int64_t end) const {
  if (table.length > length) return {};
  BlockId block = kNoBlock;
  KVANT_TRY(blocks.Take(kNoBlock, &block));
  table.entries.push_back({end, block});
  return {};
}

uint64_t State::Commit(GroupBlocks& blocks, BlockTable& table, int64_t length) const {
  if (table.length >= length) return 0;
  const int64_t before = table.length;
  table.length = length;
  if (before > 0) {
    const auto old = table.entries.end() - 2;
    blocks.Release(old->id);
    table.entries.erase(old);
  }
  return blocks.block_bytes();
}

void State::Rollback(GroupBlocks& blocks, BlockTable& table) const {
  if (table.entries.empty() || table.entries.back().number <= table.length) return;
  DropFrom(blocks, table.entries, table.entries.size() - 1);
}

// A pass takes one block and Commit gives up the one before, so one is enough for any number of
// passes. Two are needed for several passes where the present block stays, because something else
// refers to it, or where there is none yet.
int64_t State::RoomFor(const GroupBlocks& blocks, GroupId group,
                       const RoomQuestion& question) const {
  int64_t count = 0;
  for (const Growth& growth : question.growths) {
    const int64_t tokens = question.EndOf(growth) - growth.sequence->length;
    const StateEntries& entries = growth.sequence->tables[group].entries;
    const bool stays = entries.empty() || blocks.references(entries.back().id) > 1;
    count += tokens == 0 ? 0 : stays && tokens > question.piece ? 2 : 1;
  }
  return count;
}

// ---- Between passes -----------------------------------------------------------------------------

bool State::CanRewindTo(const BlockTable& table, int64_t length) const {
  if (length == 0 || length == table.length) return true;
  const auto found = LastUpTo(table.entries, length);
  return found != table.entries.end() && found->number == length;
}

void State::RewindTo(GroupBlocks& blocks, BlockTable& table, int64_t length) const {
  KVANT_CHECK(CanRewindTo(table, length));
  if (length == table.length) return;
  table.length = length;
  if (length == 0) return DropFrom(blocks, table.entries, 0);
  const auto found = LastUpTo(table.entries, length);
  DropFrom(blocks, table.entries, static_cast<size_t>(found - table.entries.begin()) + 1);
  // The entry stays as a checkpoint, and a second one is the current state.
  blocks.AddReference(table.entries.back().id);
  table.entries.push_back(table.entries.back());
}

int64_t State::ReplayFrom(const BlockTable& table, int64_t wanted) const {
  const auto found = LastUpTo(table.entries, wanted);
  return found == table.entries.end() ? 0 : found->number;
}

void State::BeginReplay(GroupBlocks& blocks, BlockTable& table, int64_t position) const {
  RewindTo(blocks, table, position);
}

Status State::CheckPrune() const {
  return MakeError(ErrorCode::kNotSupported,
                   "prune: a recurrent state holds the tokens that would go");
}

void State::Free(GroupBlocks& blocks, BlockTable& table) const {
  DropFrom(blocks, table.entries, 0);
  table.length = 0;
}

Status State::Adopt(GroupBlocks& blocks, BlockTable& table, int64_t /*first_position*/,
                    int64_t length) const {
  table.length = length;
  if (length == 0) return {};
  BlockId block = kNoBlock;
  KVANT_TRY(blocks.TakeClear(kNoBlock, &block));
  table.entries.push_back({length, block});
  return {};
}

Status State::PrepareMove(GroupBlocks& /*blocks*/, BlockTable& /*from*/, const Move& /*move*/,
                          BlockTable& /*to*/) const {
  return CheckPrune();
}

Status State::Check(const BlockTable& table, const Sequence& sequence) const {
  if (table.length < sequence.length) {
    return MakeError(ErrorCode::kCorrupt, "expected the state of {} positions, found {}",
                     sequence.length, table.length);
  }
  const bool ascending =
      std::is_sorted(table.entries.begin(), table.entries.end(),
                     [](const TableEntry& a, const TableEntry& b) { return a.number < b.number; });
  const int64_t current = table.entries.empty() ? 0 : table.entries.back().number;
  if (ascending && current == table.length) return {};
  return MakeError(ErrorCode::kCorrupt, "expected the state of {} positions last, found that of {}",
                   table.length, current);
}

}  // namespace kvant::kv
