// Operations on sequences: each asks the policy of every group what to do with its table.
#include "engine/kv/accounting/ledger.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/counted.h"
#include "base/result.h"

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

}  // namespace

Ledger::Ledger(std::vector<AccountedGroup> groups, const Limits& limits, BlockContents& contents)
    : limits_(limits), budget_(std::make_unique<Budget>()) {
  budget_->bytes_max = limits.bytes_max;
  budget_->contents = &contents;
  budget_->copies.reserve(static_cast<size_t>(limits.sequences) * groups.size());
  int64_t blocks_most = 0;
  for (AccountedGroup& group : groups) {
    blocks_most = std::max(blocks_most, group.blocks);
    const GroupId number = groups_.next_id();
    groups_.push_back({std::move(group.policy),
                       GroupBlocks(number, group.blocks, group.block_bytes, *budget_),
                       group.layers});
  }
  tails_.reserve(static_cast<size_t>(limits.sequences));
  mentions_.reserve(static_cast<size_t>(blocks_most));
}

Sequence Ledger::NewSequence() const {
  Sequence sequence;
  sequence.tables.resize(groups_.size());
  for (const GroupId group : groups_.ids()) {
    const int64_t most = policy(group).Needed(limits_.context, 1);
    sequence.tables[group].entries.reserve(
        static_cast<size_t>(std::max(BlocksFor(limits_.context), most + 1)));
  }
  return sequence;
}

// ---- Passes -------------------------------------------------------------------------------------

Status Ledger::Reserve(Sequence& sequence, int64_t tokens) {
  KVANT_CHECK(sequence.reserved == 0 && tokens > 0);
  const int64_t end = sequence.length + tokens;
  KVANT_CHECK(!sequence.replaying() || end <= sequence.replay_end);
  if (end > limits_.context) {
    return MakeError(ErrorCode::kContextFull, "{} and {} more exceed the context of {}",
                     Counted(sequence.length, "token"), tokens, limits_.context);
  }
  for (const GroupId group : groups_.ids()) {
    const Status status = groups_[group].policy->Reserve(
        groups_[group].blocks, sequence.tables[group], sequence.length, end);
    if (!status.ok()) {
      Rollback(sequence);
      return status;
    }
  }
  sequence.reserved = tokens;
  return {};
}

void Ledger::Commit(Sequence& sequence) {
  sequence.length += std::exchange(sequence.reserved, 0);
  for (const GroupId group : groups_.ids()) {
    bytes_written_ += groups_[group].policy->Commit(groups_[group].blocks, sequence.tables[group],
                                                    sequence.length);
  }
}

void Ledger::Rollback(Sequence& sequence) {
  sequence.reserved = 0;
  for (const GroupId group : groups_.ids()) {
    groups_[group].policy->Rollback(groups_[group].blocks, sequence.tables[group]);
  }
}

// ---- Going back ---------------------------------------------------------------------------------

int64_t Ledger::RewindLimit(const Sequence& sequence) const {
  int64_t limit = 0;
  for (const GroupId group : groups_.ids()) {
    limit = std::max(limit, groups_[group].policy->RewindLimit(sequence.tables[group]));
  }
  return limit;
}

bool Ledger::CanRewind(const Sequence& sequence, int64_t length) const {
  for (const GroupId group : groups_.ids()) {
    if (!groups_[group].policy->CanRewindTo(sequence.tables[group], length)) return false;
  }
  return true;
}

Status Ledger::Rewind(Sequence& sequence, int64_t length) {
  KVANT_CHECK(sequence.reserved == 0 && !sequence.replaying());
  if (length < 0 || length > sequence.length) {
    return MakeError(ErrorCode::kInvalid, "rewind to {}: the sequence has {}", length,
                     Counted(sequence.length, "token"));
  }
  for (const GroupId group : groups_.ids()) {
    if (groups_[group].policy->CanRewindTo(sequence.tables[group], length)) continue;
    return MakeError(
        ErrorCode::kNotSupported,
        "rewind to {}: expected 0 or one of the lengths from {} on, for which all that "
        "the next token sees is still held",
        length, RewindLimit(sequence));
  }
  for (const GroupId group : groups_.ids()) {
    groups_[group].policy->RewindTo(groups_[group].blocks, sequence.tables[group], length);
  }
  std::vector<PositionRange>& pruned = sequence.pruned;
  while (!pruned.empty() && pruned.back().begin >= length) pruned.pop_back();
  if (!pruned.empty()) pruned.back().end = std::min(pruned.back().end, length);
  sequence.length = length;
  return {};
}

// The first position on which rows at `position` depend through the layers of all groups.
int64_t Ledger::FirstNeeded(int64_t position) const {
  const auto looks_back = [](const Group& group) { return group.policy->LookBack() > 0; };
  if (std::ranges::count_if(groups_, looks_back) == 1) {
    const auto group = std::ranges::find_if(groups_, looks_back);
    return group->policy->DependsFrom(position, group->layers);
  }
  // The order in which layers of several groups follow each other is not known here.
  for (const Group& group : groups_) position -= group.layers * group.policy->LookBack();
  return position;
}

int64_t Ledger::ReplayBegin(const Sequence& sequence, int64_t length) const {
  // Whether there are windows; states alone begin at a checkpoint.
  const bool rows_again = std::ranges::any_of(groups_, [this](const Group& group) {
    return group.policy->holds() == Holds::kPositions &&
           group.policy->NeededForReplay(limits_.context) > 0;
  });
  // The last block that is dropped afterwards ends up to a block before the slack does, and what is
  // kept from there on must be right, too: later rewinds count on it.
  const int64_t kept = length - kRewindSlack - (kBlockTokens - 1);
  int64_t begin =
      rows_again ? std::max<int64_t>(0, FirstNeeded(kept)) / kBlockTokens * kBlockTokens : length;
  // Goes on until all groups can begin at one position; at 0 all can.
  for (int64_t before = -1; before != begin;) {
    before = begin;
    for (const GroupId group : groups_.ids()) {
      begin = groups_[group].policy->ReplayFrom(sequence.tables[group], begin);
    }
  }
  return begin;
}

void Ledger::BeginReplay(Sequence& sequence, int64_t position) {
  KVANT_CHECK(sequence.reserved == 0 && position <= sequence.length);
  for (const GroupId group : groups_.ids()) {
    groups_[group].policy->BeginReplay(groups_[group].blocks, sequence.tables[group], position);
  }
  sequence.replay_end = sequence.length;
  sequence.length = position;
}

void Ledger::EndReplay(Sequence& sequence) {
  sequence.replay_end = 0;
  for (const GroupId group : groups_.ids()) {
    groups_[group].policy->RewindTo(groups_[group].blocks, sequence.tables[group], sequence.length);
  }
}

void Ledger::Checkpoint(Sequence& sequence) {
  KVANT_CHECK(sequence.reserved == 0);
  for (const GroupId group : groups_.ids()) {
    groups_[group].policy->Checkpoint(groups_[group].blocks, sequence.tables[group]);
  }
}

bool Ledger::DropCheckpoint(Sequence& sequence, GroupId group) {
  for (const GroupId id : group_ids()) {
    if (group != kAnyGroup && group != id) continue;
    if (policy(id).DropCheckpoint(blocks(id), sequence.tables[id])) return true;
  }
  return false;
}

Status Ledger::Prune(Sequence& sequence, int64_t begin, int64_t end) {
  KVANT_CHECK(sequence.reserved == 0);
  if (begin < 0 || begin > end || end > sequence.length) {
    return MakeError(ErrorCode::kInvalid, "prune [{}, {}): the sequence has {}", begin, end,
                     Counted(sequence.length, "token"));
  }
  if (begin == end) return {};
  for (const Group& group : groups_) KVANT_TRY(group.policy->CheckPrune());
  AddRange(sequence.pruned, {begin, end});
  for (const GroupId group : groups_.ids()) {
    groups_[group].policy->Prune(groups_[group].blocks, sequence.tables[group], sequence);
  }
  return {};
}

Result<IdVector<GroupId, BlockTable>> Ledger::PrepareMove(Sequence& sequence, int64_t begin,
                                                          int64_t end) {
  for (const Group& group : groups_) KVANT_TRY(group.policy->CheckPrune());
  const Move move{begin, end, sequence.length};
  IdVector<GroupId, BlockTable> tables(groups_.size());
  Status status;
  for (const GroupId group : groups_.ids()) {
    if (!status.ok()) break;
    status = groups_[group].policy->PrepareMove(groups_[group].blocks, sequence.tables[group], move,
                                                tables[group]);
  }
  if (status.ok()) return tables;
  for (const GroupId group : groups_.ids()) {
    groups_[group].policy->AbandonMove(groups_[group].blocks, sequence.tables[group], move,
                                       tables[group]);
  }
  return status.error();
}

void Ledger::FinishMove(Sequence& sequence, IdVector<GroupId, BlockTable> tables,
                        int64_t distance) {
  for (const GroupId group : groups_.ids()) {
    groups_[group].policy->FinishMove(groups_[group].blocks, sequence.tables[group], tables[group]);
  }
  sequence.length -= distance;
}

// ---- Sharing ------------------------------------------------------------------------------------

void Ledger::Fork(const Sequence& sequence, Sequence& copy) {
  KVANT_CHECK(sequence.reserved == 0 && !sequence.replaying() && copy.length == 0);
  for (const GroupId group : groups_.ids()) {
    const BlockTable& from = sequence.tables[group];
    BlockTable& to = copy.tables[group];
    groups_[group].blocks.AddReferences(from);
    groups_[group].policy->Free(groups_[group].blocks, to);  // perhaps a source
    to.first_position = from.first_position;
    to.length = from.length;
    to.entries.assign(from.entries.begin(), from.entries.end());
  }
  copy.length = sequence.length;
  copy.pruned = sequence.pruned;
}

void Ledger::Free(Sequence& sequence) {
  for (const GroupId group : groups_.ids()) {
    groups_[group].policy->Free(groups_[group].blocks, sequence.tables[group]);
  }
  sequence.length = 0;
  sequence.reserved = 0;
  sequence.replay_end = 0;
  sequence.pruned.clear();
}

Status Ledger::Adopt(Sequence& sequence, int64_t length,
                     const IdVector<GroupId, int64_t>& first_positions) {
  KVANT_CHECK(sequence.length == 0 && sequence.reserved == 0);
  if (length > limits_.context) {
    return MakeError(ErrorCode::kContextFull, "{} tokens exceed the context of {}", length,
                     limits_.context);
  }
  for (const GroupId group : groups_.ids()) {
    const Status status = groups_[group].policy->Adopt(
        groups_[group].blocks, sequence.tables[group], first_positions[group], length);
    if (!status.ok()) {
      Free(sequence);
      return status;
    }
  }
  sequence.length = length;
  return {};
}

void Ledger::Attach(Sequence& sequence, int64_t count,
                    const std::function<BlockId(GroupId group, int64_t number)>& block_of) {
  KVANT_CHECK(sequence.length == 0 && sequence.reserved == 0);
  if (count == 0) return;
  const int64_t length = count * kBlockTokens;
  for (const GroupId group : group_ids()) {
    if (policy(group).holds() == Holds::kSource) continue;  // it stays
    BlockTable& table = sequence.tables[group];
    table.length = length;
    if (policy(group).holds() == Holds::kState) {
      table.entries.push_back({length, block_of(group, count - 1)});
      blocks(group).AddReferences(table);
      policy(group).Checkpoint(blocks(group), table);
      continue;
    }
    table.first_position = policy(group).FirstVisible(length) / kBlockTokens * kBlockTokens;
    for (int64_t number = table.first_block(); number < count; ++number) {
      table.entries.push_back({number, block_of(group, number)});
    }
    blocks(group).AddReferences(table);
  }
  sequence.length = length;
}

Result<Source> Ledger::NewSource(int64_t length) {
  Source source;
  source.tables.resize(groups_.size());
  for (const GroupId group : groups_.ids()) {
    const Status status =
        groups_[group].policy->TakeSource(groups_[group].blocks, source.tables[group], length);
    if (!status.ok()) {
      FreeSource(source);
      return status.error();
    }
  }
  return source;
}

void Ledger::EndEncoding(Source& source) {
  for (const GroupId group : groups_.ids()) {
    groups_[group].policy->EndSource(groups_[group].blocks, source.tables[group]);
  }
}

Status Ledger::SetSource(Sequence& sequence, const Source& source) {
  if (sequence.length != 0 || sequence.reserved != 0) {
    return MakeError(ErrorCode::kInvalid, "source: expected an empty sequence, found {} tokens",
                     sequence.length);
  }
  Free(sequence);
  ShareSource(sequence, source);
  return {};
}

void Ledger::ShareSource(Sequence& sequence, const Source& source) {
  for (const GroupId group : groups_.ids()) {
    if (policy(group).holds() != Holds::kSource) continue;
    KVANT_CHECK(sequence.tables[group].entries.empty());
    groups_[group].blocks.AddReferences(source.tables[group]);
    sequence.tables[group].length = source.tables[group].length;
    sequence.tables[group].entries = source.tables[group].entries;
  }
}

void Ledger::FreeSource(Source& source) {
  for (const GroupId group : groups_.ids()) {
    groups_[group].policy->Free(groups_[group].blocks, source.tables[group]);
  }
}

Result<BlockId> Ledger::TakeBlock(GroupId group, BlockId previous) {
  BlockId block = kNoBlock;
  KVANT_TRY(blocks(group).Take(previous, &block));
  return block;
}

// ---- What there is ------------------------------------------------------------------------------

Status Ledger::CheckTables(const Sequence& sequence) const {
  for (const GroupId group : groups_.ids()) {
    const Status status = groups_[group].policy->Check(sequence.tables[group], sequence);
    if (status.ok()) continue;
    return MakeError(status.error().code, "KV check: group {}: {}", group, status.error().message);
  }
  return {};
}

Status Ledger::Check(std::span<const Sequence* const> sequences,
                     const std::function<int(GroupId group, BlockId block)>& others) const {
  for (const Sequence* sequence : sequences) KVANT_TRY(CheckTables(*sequence));
  uint64_t bytes = 0;
  for (const GroupId group : group_ids()) {
    std::map<BlockId, int> counted;
    for (const Sequence* sequence : sequences) {
      for (const TableEntry& entry : sequence->tables[group].entries) {
        ++counted[entry.id];
      }
    }
    const BlockPool& pool = blocks(group).pool();
    for (const BlockId block : pool.ids()) {
      const auto found = counted.find(block);
      const int expected = (found == counted.end() ? 0 : found->second) + others(group, block);
      if (pool.references(block) != expected) {
        return MakeError(ErrorCode::kCorrupt,
                         "KV check: group {}: block {} has {} references, {} are known", group,
                         block, pool.references(block), expected);
      }
    }
    bytes += static_cast<uint64_t>(pool.used()) * blocks(group).block_bytes();
  }
  if (bytes != bytes_used()) {
    return MakeError(ErrorCode::kCorrupt, "KV check: {} bytes in use, {} counted", bytes_used(),
                     bytes);
  }
  return {};
}

void Ledger::SetAllCommitted() {
  for (Group& group : groups_) group.blocks.set_committed(group.blocks.pool().capacity());
}

CacheStats Ledger::stats() const {
  CacheStats stats{budget_->bytes_used,
                   budget_->bytes_peak,
                   bytes_written_,
                   budget_->bytes_copied,
                   budget_->blocks_taken,
                   budget_->blocks_copied,
                   {}};
  for (const Group& group : groups_) {
    const BlockPool& pool = group.blocks.pool();
    CacheStats::Group& out = stats.groups.emplace_back();
    out.capacity = pool.capacity();
    out.committed = group.blocks.committed();
    out.used = pool.used();
    out.dropped = group.blocks.dropped();
    out.block_bytes = group.blocks.block_bytes();
    for (const BlockId block : pool.ids()) {
      out.shared += pool.references(block) > 1 ? 1 : 0;
    }
  }
  return stats;
}

BlockTotals Ledger::block_totals() const {
  const uint64_t left = limits_.bytes_max - std::min(limits_.bytes_max, budget_->bytes_used);
  BlockTotals counts;
  for (const Group& group : groups_) {
    const BlockPool& pool = group.blocks.pool();
    const int64_t free = pool.capacity() - pool.used();
    const auto affordable = static_cast<int64_t>(left / group.blocks.block_bytes());
    counts.free += limits_.bytes_max > 0 ? std::min(free, affordable) : free;
    counts.used += pool.used();
    for (const BlockId block : pool.ids()) counts.shared += pool.references(block) > 1 ? 1 : 0;
  }
  return counts;
}

}  // namespace kvant::kv
