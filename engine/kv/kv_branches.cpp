// What becomes of block tables between steps: rewinding, pruning, moving, forking; and the check of
// all of them.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/kv/kv_cache.h"

namespace kvant::kv {
namespace {

// Adds [begin, end) to ranges that are ascending and apart.
void AddRange(std::vector<PositionRange>& ranges, PositionRange added) {
  std::vector<PositionRange> merged;
  for (const PositionRange& range : ranges) {
    if (range.end < added.begin || range.begin > added.end) {
      merged.push_back(range);
    } else {
      added = {std::min(range.begin, added.begin), std::max(range.end, added.end)};
    }
  }
  merged.insert(std::find_if(merged.begin(), merged.end(),
                             [&](const PositionRange& r) { return r.begin > added.begin; }),
                added);
  ranges = std::move(merged);
}

bool Covers(const std::vector<PositionRange>& ranges, PositionRange wanted) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const PositionRange& range) {
    return range.begin <= wanted.begin && wanted.end <= range.end;
  });
}

}  // namespace

// ---- Rewinding and pruning ----------------------------------------------------------------------

int64_t Cache::RewindLimit(const Sequence& sequence) const {
  int64_t limit = 0;
  for (int group = 0; group < groups(); ++group) {
    const int64_t first = sequence.tables[static_cast<size_t>(group)].first_position;
    if (first > 0) limit = std::max(limit, first + shape(group).window - 1);
  }
  return limit;
}

Status Cache::Rewind(Sequence& sequence, int64_t length) {
  KVANT_CHECK(sequence.reserved == 0);
  if (length < 0 || length > sequence.length) {
    return MakeError(ErrorCode::kInvalid, "rewind to {}: the sequence has {} tokens", length,
                     sequence.length);
  }
  const int64_t limit = RewindLimit(sequence);
  if (length > 0 && length < limit) {
    return MakeError(ErrorCode::kNotSupported,
                     "rewind to {}: the sliding window still holds what positions from {} on need",
                     length, limit);
  }
  for (int group = 0; group < groups(); ++group) {
    BlockTable& table = sequence.tables[static_cast<size_t>(group)];
    Shrink(group, table, length);
    if (length == 0) table.first_position = 0;
  }
  std::vector<PositionRange>& pruned = sequence.pruned;
  while (!pruned.empty() && pruned.back().begin >= length) pruned.pop_back();
  if (!pruned.empty()) pruned.back().end = std::min(pruned.back().end, length);
  sequence.length = length;
  return {};
}

void Cache::BeginReplay(Sequence& sequence, int64_t position) {
  KVANT_CHECK(position % kBlockTokens == 0 && position <= sequence.length);
  for (int group = 0; group < groups(); ++group) {
    if (shape(group).window == 0) continue;
    BlockTable& table = sequence.tables[static_cast<size_t>(group)];
    Shrink(group, table, 0);
    table.first_position = position;
  }
  sequence.replaying = true;
  sequence.length = position;
}

Status Cache::Prune(Sequence& sequence, int64_t begin, int64_t end) {
  KVANT_CHECK(sequence.reserved == 0);
  if (begin < 0 || begin > end || end > sequence.length) {
    return MakeError(ErrorCode::kInvalid, "prune [{}, {}): the sequence has {} tokens", begin, end,
                     sequence.length);
  }
  if (begin == end) return {};
  AddRange(sequence.pruned, {begin, end});
  for (int group = 0; group < groups(); ++group) {
    std::vector<TableEntry>& entries = sequence.tables[static_cast<size_t>(group)].entries;
    const auto gone = [&](const TableEntry& entry) {
      const int64_t first = entry.number * kBlockTokens;
      const PositionRange held = {first, std::min(first + kBlockTokens, sequence.length)};
      if (!Covers(sequence.pruned, held)) return false;
      ReleaseBlock(group, entry.id);
      return true;
    };
    entries.erase(std::remove_if(entries.begin(), entries.end(), gone), entries.end());
  }
  return {};
}

// ---- Sharing ------------------------------------------------------------------------------------

void Cache::Fork(const Sequence& sequence, Sequence& copy) {
  KVANT_CHECK(sequence.reserved == 0 && copy.length == 0);
  copy.length = sequence.length;
  copy.replaying = sequence.replaying;
  copy.pruned = sequence.pruned;
  for (int group = 0; group < groups(); ++group) {
    const BlockTable& table = sequence.tables[static_cast<size_t>(group)];
    BlockTable& target = copy.tables[static_cast<size_t>(group)];
    target.first_position = table.first_position;
    target.entries = table.entries;
    for (const TableEntry& entry : table.entries) AddReference(group, entry.id);
  }
}

Status Cache::Adopt(Sequence& sequence, int64_t length, std::span<const int64_t> first_positions) {
  KVANT_CHECK(sequence.length == 0 && sequence.reserved == 0);
  if (length > context_) {
    return MakeError(ErrorCode::kContextFull, "{} tokens exceed the context of {}", length,
                     context_);
  }
  for (int group = 0; group < groups(); ++group) {
    BlockTable& table = sequence.tables[static_cast<size_t>(group)];
    table.first_position = first_positions[static_cast<size_t>(group)];
    for (int64_t number = table.first_block(); number * kBlockTokens < length; ++number) {
      BlockId block = kNoBlock;
      const Status status =
          Take(group, table.entries.empty() ? kNoBlock : table.entries.back().id, &block);
      if (!status.ok()) {
        Free(sequence);
        return status;
      }
      Fill(groups_[static_cast<size_t>(group)], block, 0);
      table.entries.push_back({number, block});
    }
  }
  sequence.length = length;
  return {};
}

void Cache::Free(Sequence& sequence) {
  sequence.length = 0;
  sequence.reserved = 0;
  sequence.replaying = false;
  sequence.pruned.clear();
  for (int group = 0; group < groups(); ++group) {
    BlockTable& table = sequence.tables[static_cast<size_t>(group)];
    Shrink(group, table, 0);
    table.first_position = 0;
  }
}

Status Cache::MakePrivate(int group, BlockTable& table, int64_t begin) {
  for (TableEntry& entry : table.entries) {
    if ((entry.number + 1) * kBlockTokens > begin) KVANT_TRY(CopyOnWrite(group, entry));
  }
  return {};
}

Result<std::vector<BlockTable>> Cache::PrepareMove(Sequence& sequence, int64_t begin, int64_t end) {
  std::vector<BlockTable> tables(groups_.size());
  const int64_t distance = end - begin;
  Status status;
  for (int group = 0; group < groups() && status.ok(); ++group) {
    BlockTable& from = sequence.tables[static_cast<size_t>(group)];
    BlockTable& to = tables[static_cast<size_t>(group)];
    const int64_t held = from.first_position;
    if (held <= begin) {
      status = MakePrivate(group, from, begin);
      to = from;
      continue;
    }
    to.first_position = std::max(held, end) - distance;
    for (int64_t number = to.first_block(); number * kBlockTokens < sequence.length - distance;
         ++number) {
      BlockId block = kNoBlock;
      status = Take(group, to.entries.empty() ? kNoBlock : to.entries.back().id, &block);
      if (!status.ok()) break;
      Fill(groups_[static_cast<size_t>(group)], block, 0);
      to.entries.push_back({number, block});
    }
  }
  if (status.ok()) return tables;
  for (int group = 0; group < groups(); ++group) {
    BlockTable& to = tables[static_cast<size_t>(group)];
    if (sequence.tables[static_cast<size_t>(group)].first_position <= begin) continue;
    Shrink(group, to, 0);
  }
  return status.error();
}

void Cache::FinishMove(Sequence& sequence, std::vector<BlockTable> tables, int64_t distance) {
  sequence.length -= distance;
  for (int group = 0; group < groups(); ++group) {
    BlockTable& table = sequence.tables[static_cast<size_t>(group)];
    BlockTable& moved = tables[static_cast<size_t>(group)];
    const bool in_place = table.entries.empty() || moved.entries.empty()
                              ? table.first_position == moved.first_position
                              : table.entries.front().id == moved.entries.front().id;
    if (in_place) {
      Shrink(group, table, sequence.length);
      continue;
    }
    Shrink(group, table, 0);
    table.first_position = moved.first_position;
    table.entries.assign(moved.entries.begin(), moved.entries.end());
  }
}

// ---- Invariants ---------------------------------------------------------------------------------

Status Cache::CheckTables(const Sequence& sequence) const {
  for (int group = 0; group < groups(); ++group) {
    const BlockTable& table = sequence.tables[static_cast<size_t>(group)];
    const int64_t oldest = shape(group).FirstVisible(sequence.length);
    const PositionRange begins = FirstPositions(shape(group), sequence.length, false);
    if (table.first_position < begins.begin || table.first_position >= begins.end) {
      return MakeError(ErrorCode::kCorrupt,
                       "KV check: group {}: first position: expected {} to {}, found {}", group,
                       begins.begin, begins.end - 1, table.first_position);
    }
    int64_t next = table.first_block();
    const auto missing = [&](int64_t until) -> Status {
      const PositionRange range = {std::max(next * kBlockTokens, oldest), until};
      if (range.begin >= range.end || Covers(sequence.pruned, range)) return {};
      return MakeError(ErrorCode::kCorrupt, "KV check: group {}: positions [{}, {}) are missing",
                       group, range.begin, range.end);
    };
    for (const TableEntry& entry : table.entries) {
      if (entry.number < next) {
        return MakeError(ErrorCode::kCorrupt, "KV check: group {}: block {} comes after {}", group,
                         entry.number, next - 1);
      }
      KVANT_TRY(missing(entry.number * kBlockTokens));
      next = entry.number + 1;
    }
    KVANT_TRY(missing(sequence.length));
  }
  return {};
}

Status Cache::Check(std::span<const Sequence* const> sequences,
                    const std::function<int(int group, BlockId block)>& others) const {
  for (const Sequence* sequence : sequences) KVANT_TRY(CheckTables(*sequence));
  uint64_t bytes = 0;
  for (int group = 0; group < groups(); ++group) {
    const Group& pools = groups_[static_cast<size_t>(group)];
    std::map<BlockId, int> counted;
    for (const Sequence* sequence : sequences) {
      for (const TableEntry& entry : sequence->tables[static_cast<size_t>(group)].entries) {
        ++counted[entry.id];
      }
    }
    for (BlockId block = 0; block < pools.pool.capacity(); ++block) {
      const auto found = counted.find(block);
      const int expected = (found == counted.end() ? 0 : found->second) + others(group, block);
      if (pools.pool.references(block) != expected) {
        return MakeError(ErrorCode::kCorrupt,
                         "KV check: group {}: block {} has {} references, {} are known", group,
                         block, pools.pool.references(block), expected);
      }
    }
    bytes += static_cast<uint64_t>(pools.pool.used()) * pools.block_bytes;
  }
  if (bytes != bytes_used_) {
    return MakeError(ErrorCode::kCorrupt, "KV check: {} bytes in use, {} counted", bytes_used_,
                     bytes);
  }
  return {};
}

}  // namespace kvant::kv
