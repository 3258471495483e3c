// How tables of rows grow, shrink, are pruned and moved.
#include "engine/kv/policies/by_position.h"

#include <algorithm>

#include "base/result.h"

namespace kvant::kv {
namespace {

bool Covers(const std::vector<PositionRange>& ranges, PositionRange wanted) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const PositionRange& range) {
    return range.begin <= wanted.begin && wanted.end <= range.end;
  });
}

BlockId LastBlock(const BlockTable& table) {
  return table.entries.empty() ? kNoBlock : table.entries.back().id;
}

// Takes blocks of zeros for the table's positions up to `length`.
Status TakeAll(GroupBlocks& blocks, BlockTable& table, int64_t length) {
  for (int64_t number = table.first_block(); number * kBlockTokens < length; ++number) {
    BlockId block = kNoBlock;
    KVANT_TRY(blocks.TakeClear(LastBlock(table), &block));
    table.entries.push_back({number, block});
  }
  table.length = length;
  return {};
}

// Whether the table holds the position that tokens move to, so that they move inside it.
bool MovesInPlace(const BlockTable& from, const Move& move) {
  return from.first_position <= move.begin;
}

}  // namespace

// ---- Passes -------------------------------------------------------------------------------------

Status ByPosition::Reserve(GroupBlocks& blocks, BlockTable& table, int64_t length,
                           int64_t end) const {
  if (table.length > length) return {};
  const int64_t first = length / kBlockTokens;
  if (!table.entries.empty() && table.entries.back().number == first) {
    KVANT_TRY(blocks.CopyOnWrite(table.entries.back()));
  }
  for (int64_t number = std::max(table.end_block(), first); number * kBlockTokens < end; ++number) {
    BlockId block = kNoBlock;
    // Rows of the block before `length` are pruned: attention multiplies them by a weight of zero,
    // so they must be finite.
    const bool has_old_rows = number * kBlockTokens < length;
    KVANT_TRY(has_old_rows ? blocks.TakeClear(LastBlock(table), &block)
                           : blocks.Take(LastBlock(table), &block));
    table.entries.push_back({number, block});
  }
  return {};
}

uint64_t ByPosition::Commit(GroupBlocks& blocks, BlockTable& table, int64_t length) const {
  if (table.length >= length) return 0;
  const uint64_t written = static_cast<uint64_t>(length - table.length) * blocks.bytes_per_token();
  table.length = length;
  const int64_t first = FirstKept(length);
  if (first / kBlockTokens <= table.first_block()) return written;
  const auto kept = std::find_if(
      table.entries.begin(), table.entries.end(),
      [first](const TableEntry& entry) { return entry.number >= first / kBlockTokens; });
  blocks.DropFront(table, static_cast<size_t>(kept - table.entries.begin()),
                   {table.first_position, first});
  table.first_position = first;
  return written;
}

void ByPosition::Rollback(GroupBlocks& blocks, BlockTable& table) const {
  blocks.Shrink(table, table.length);
}

// ---- Going back ---------------------------------------------------------------------------------

bool ByPosition::CanRewindTo(const BlockTable& table, int64_t length) const {
  return length == 0 || length >= RewindLimit(table);
}

void ByPosition::RewindTo(GroupBlocks& blocks, BlockTable& table, int64_t length) const {
  blocks.Shrink(table, length);
  table.length = std::min(table.length, length);
  if (length == 0) table.first_position = 0;
}

void ByPosition::Prune(GroupBlocks& blocks, BlockTable& table, const Sequence& sequence) const {
  const auto gone = [&](const TableEntry& entry) {
    const int64_t first = entry.number * kBlockTokens;
    const PositionRange held = {first, std::min(first + kBlockTokens, sequence.length)};
    if (!Covers(sequence.pruned, held)) return false;
    blocks.Release(entry.id);
    return true;
  };
  table.entries.erase(std::remove_if(table.entries.begin(), table.entries.end(), gone),
                      table.entries.end());
}

void ByPosition::Free(GroupBlocks& blocks, BlockTable& table) const { RewindTo(blocks, table, 0); }

Status ByPosition::Adopt(GroupBlocks& blocks, BlockTable& table, int64_t first_position,
                         int64_t length) const {
  table.first_position = first_position;
  return TakeAll(blocks, table, length);
}

// ---- Moving -------------------------------------------------------------------------------------

Status ByPosition::PrepareMove(GroupBlocks& blocks, BlockTable& from, const Move& move,
                               BlockTable& to) const {
  if (!MovesInPlace(from, move)) {
    to.first_position = std::max(from.first_position, move.end) - move.distance();
    return TakeAll(blocks, to, move.length - move.distance());
  }
  for (TableEntry& entry : from.entries) {
    if ((entry.number + 1) * kBlockTokens > move.begin) KVANT_TRY(blocks.CopyOnWrite(entry));
  }
  to = from;
  to.length = move.length - move.distance();
  return {};
}

void ByPosition::AbandonMove(GroupBlocks& blocks, const BlockTable& from, const Move& move,
                             BlockTable& to) const {
  if (!MovesInPlace(from, move)) blocks.Shrink(to, 0);
}

void ByPosition::FinishMove(GroupBlocks& blocks, BlockTable& table, const BlockTable& to) const {
  const bool in_place = table.entries.empty() || to.entries.empty()
                            ? table.first_position == to.first_position
                            : table.entries.front().id == to.entries.front().id;
  if (in_place) return RewindTo(blocks, table, to.length);
  Free(blocks, table);
  table.first_position = to.first_position;
  table.length = to.length;
  table.entries.assign(to.entries.begin(), to.entries.end());
}

// ---- Room ---------------------------------------------------------------------------------------

int64_t ByPosition::NewBlocks(const GroupBlocks& blocks, GroupId group,
                              const RoomQuestion& question) const {
  int64_t count = 0;
  std::vector<BlockId>& tails = *question.tails;
  tails.clear();
  for (const Growth& growth : question.growths) {
    const Sequence& sequence = *growth.sequence;
    const int64_t end = question.EndOf(growth);
    if (end == sequence.length) continue;
    const BlockTable& table = sequence.tables[group];
    const int64_t first = sequence.length / kBlockTokens;
    if (!table.entries.empty() && table.entries.back().number == first) {
      // Several sequences may write into one block: the last of them need not copy it.
      const BlockId tail = table.entries.back().id;
      const auto earlier = std::count(tails.begin(), tails.end(), tail);
      if (blocks.references(tail) > 1 + earlier) ++count;
      tails.push_back(tail);
    }
    count += Peak({sequence.length, end}, question.piece, std::max(table.end_block(), first),
                  [](int64_t) { return 0; });
  }
  return count;
}

// ---- Invariants ---------------------------------------------------------------------------------

Status ByPosition::Check(const BlockTable& table, const Sequence& sequence) const {
  const PositionRange begins = FirstPositions(sequence.length, Origin::kChanged);
  if (table.first_position < begins.begin || table.first_position >= begins.end) {
    return MakeError(ErrorCode::kCorrupt, "first position: expected {} to {}, found {}",
                     begins.begin, begins.end - 1, table.first_position);
  }
  if (table.length < sequence.length) {
    return MakeError(ErrorCode::kCorrupt, "expected {} positions, found {}", sequence.length,
                     table.length);
  }
  const int64_t oldest = FirstVisible(sequence.length);
  int64_t next = table.first_block();
  const auto missing = [&](int64_t until) -> Status {
    const PositionRange range = {std::max(next * kBlockTokens, oldest), until};
    if (range.begin >= range.end || Covers(sequence.pruned, range)) return {};
    return MakeError(ErrorCode::kCorrupt, "positions [{}, {}) are missing", range.begin, range.end);
  };
  for (const TableEntry& entry : table.entries) {
    if (entry.number < next) {
      return MakeError(ErrorCode::kCorrupt, "block {} comes after {}", entry.number, next - 1);
    }
    KVANT_TRY(missing(entry.number * kBlockTokens));
    next = entry.number + 1;
  }
  return missing(sequence.length);
}

}  // namespace kvant::kv
