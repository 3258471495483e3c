// Merges the block tables of the sequences of a pass into runs.
#include "engine/kv/pass_view.h"

#include <algorithm>
#include <limits>

#include "cpu/kv_format_list.h"
#include "engine/kv/policies/state.h"

namespace kvant::kv {
namespace {

constexpr uint64_t kAllRows = ~uint64_t{0};
constexpr size_t kNoRun = ~size_t{0};

// The bits of `rows` rows of a cluster from row `first` on. A cluster of one part needs no bits, so
// that it may have more than 64 rows.
uint64_t RowBits(int64_t first, int64_t rows, bool alone) {
  return alone ? kAllRows : ((uint64_t{1} << rows) - 1) << first;
}

const std::vector<TableEntry>& Entries(const PartRows& part, GroupId group) {
  return part.sequence->tables[group].entries;
}

}  // namespace

int64_t PassView::RunsMax(int64_t context, int64_t parts) {
  return std::min(parts, kRowTile) * ((context + kBlockTokens - 1) / kBlockTokens);
}

PassView::PassView(const Cache& cache, int64_t parts, int64_t rows)
    : cache_(&cache), groups_(static_cast<size_t>(cache.groups())) {
  const size_t count = static_cast<size_t>(parts);
  // A part's rows begin and end inside tiles.
  const size_t tiles = static_cast<size_t>(rows / kRowTile) + 2 * count;
  parts_.reserve(count);
  tiles_.reserve(tiles);
  cursors_.resize(count);
  reaches_.resize(count);
  last_runs_.resize(count);
  for (GroupView& view : groups_) {
    view.runs.reserve(static_cast<size_t>(RunsMax(cache.positions(), 1)) * count);
    view.work.reserve(tiles);
  }
}

void PassView::Set(std::span<const PartRows> parts) {
  parts_.assign(parts.begin(), parts.end());
  CutTiles();
  for (const GroupId group : cache_->group_ids()) {
    GroupView& view = groups_[group];
    view.runs.clear();
    view.hidden.clear();
    view.work.clear();
    if (cache_->policy(group).holds() == Holds::kState) continue;
    for (size_t first = 0; first < parts_.size();) {
      const size_t end = ClusterEnd(group, first);
      AddCluster(group, first, end);
      first = end;
    }
  }
}

void PassView::CutTiles() {
  tiles_.clear();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const PartRows& part = parts_[i];
    for (int64_t row = 0; row < part.rows;) {
      const int64_t position = part.sequence->length + row;
      const int64_t rows = std::min(part.rows - row, kRowTile - position % kRowTile);
      tiles_.push_back({static_cast<int>(i), part.first_row + row, rows});
      row += rows;
    }
  }
}

// Where the cluster ends that begins with part `first`: parts that are attended to together.
size_t PassView::ClusterEnd(GroupId group, size_t first) const {
  const std::vector<TableEntry>& entries = Entries(parts_[first], group);
  int64_t rows = parts_[first].rows;
  size_t end = first + 1;
  for (; end < parts_.size(); ++end) {
    rows += parts_[end].rows;
    const std::vector<TableEntry>& others = Entries(parts_[end], group);
    if (rows > kRowTile || entries.empty() || others.empty() ||
        entries.front().number != others.front().number ||
        entries.front().id != others.front().id) {
      break;
    }
  }
  return end;
}

void PassView::AddCluster(GroupId group, size_t first, size_t end) {
  GroupView& view = groups_[group];
  const size_t runs_begin = view.runs.size();
  const size_t hidden_begin = view.hidden.size();
  AddRuns(group, first, end);
  int64_t rows = 0;
  for (size_t i = first; i < end; ++i) {
    const Sequence& sequence = *parts_[i].sequence;
    const uint64_t bits = RowBits(rows, parts_[i].rows, end - first == 1);
    if (cache_->policy(group).holds() == Holds::kPositions) {
      for (const PositionRange& range : sequence.pruned) {
        view.hidden.push_back({range.begin, range.end, bits});
      }
    }
    const BlockTable& table = sequence.tables[group];
    if (table.first_position % kBlockTokens != 0) {
      view.hidden.push_back({table.first_block() * kBlockTokens, table.first_position, bits});
    }
    rows += parts_[i].rows;
  }
  for (int64_t row = 0; row < rows; row += kRowTile) {
    view.work.push_back({parts_[first].first_row + row, std::min(kRowTile, rows - row), runs_begin,
                         view.runs.size(), hidden_begin, view.hidden.size()});
  }
}

// Walks the tables of the parts side by side, block number by block number.
void PassView::AddRuns(GroupId group, size_t first, size_t end) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  std::vector<BlockRun>& runs = groups_[group].runs;
  std::fill(cursors_.begin(), cursors_.end(), 0);
  std::fill(last_runs_.begin(), last_runs_.end(), kNoRun);
  for (size_t i = first; i < end; ++i) reaches_[i] = Reach(group, parts_[i]);
  while (true) {
    int64_t number = kNone;
    for (size_t i = first; i < end; ++i) {
      const std::vector<TableEntry>& entries = Entries(parts_[i], group);
      if (cursors_[i] < entries.size()) number = std::min(number, entries[cursors_[i]].number);
    }
    if (number == kNone) return;
    const size_t added = runs.size();
    AddBlocks(group, first, end, number);
    JoinRuns(runs, added);
  }
}

int64_t PassView::Reach(GroupId group, const PartRows& part) const {
  const Sequence& sequence = *part.sequence;
  // Tables that a replay leaves alone hold positions that the pass must not see yet.
  return cache_->policy(group).holds() == Holds::kPositions ? sequence.length + sequence.reserved
                                                            : sequence.tables[group].length;
}

// One run for every block that a part of the cluster holds under this number.
void PassView::AddBlocks(GroupId group, size_t first, size_t end, int64_t number) {
  std::vector<BlockRun>& runs = groups_[group].runs;
  const std::ptrdiff_t added = static_cast<std::ptrdiff_t>(runs.size());
  int64_t bit = 0;
  for (size_t i = first; i < end; ++i) {
    const PartRows& part = parts_[i];
    const uint64_t bits = RowBits(bit, part.rows, end - first == 1);
    bit += part.rows;
    const std::vector<TableEntry>& entries = Entries(part, group);
    if (cursors_[i] == entries.size() || entries[cursors_[i]].number != number) continue;
    const BlockId block = entries[cursors_[i]++].id;
    const int64_t position = number * kBlockTokens;
    const int64_t count = std::min(kBlockTokens, reaches_[i] - position);
    if (count <= 0) continue;
    const auto shared = std::find_if(runs.begin() + added, runs.end(),
                                     [block](const BlockRun& run) { return run.block == block; });
    if (shared != runs.end()) {
      shared->rows |= bits;  // all see all of it: what a part writes into is its own
    } else {
      runs.push_back({block, position, count, bits, i});
    }
  }
}

// Joins each of the runs from number `added` on with the earlier run that it continues in memory
// and that the same rows may see.
void PassView::JoinRuns(std::vector<BlockRun>& runs, size_t added) {
  for (size_t i = added; i < runs.size();) {
    const BlockRun run = runs[i];
    size_t& last = last_runs_[run.owner];
    if (last != kNoRun && runs[last].rows == run.rows &&
        runs[last].first_position + runs[last].count == run.first_position &&
        Successor(runs[last].block, runs[last].count / kBlockTokens) == run.block) {
      runs[last].count += run.count;
      runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      last = i++;
    }
  }
}

PassView::StatePlace PassView::StateOf(int layer, int part) const {
  const PartRows& rows = parts_[static_cast<size_t>(part)];
  const BlockTable& table = rows.sequence->tables[group_of_layer(layer)];
  const Lanes lanes = cache_->LanesOf(layer, 0);
  const auto floats = [&lanes](BlockId block) {
    return block == kNoBlock ? nullptr : reinterpret_cast<float*>(lanes.At(block).keys);
  };
  return {floats(State::ReadBlock(table, rows.sequence->length)), floats(State::WriteBlock(table))};
}

BlockId PassView::BlockOf(int layer, int part, int64_t position) const {
  // The positions of a pass are in the last blocks of a table, whose numbers are consecutive.
  const std::vector<TableEntry>& entries =
      Entries(parts_[static_cast<size_t>(part)], group_of_layer(layer));
  const int64_t back = entries.back().number - position / kBlockTokens;
  return entries[entries.size() - 1 - static_cast<size_t>(back)].id;
}

PassView::Place PassView::PlaceOf(int layer, int head, int part, int64_t position) const {
  const GroupShape& shape = cache_->shape(group_of_layer(layer));
  const BlockPlace block = cache_->LanesOf(layer, head).At(BlockOf(layer, part, position));
  const size_t token = static_cast<size_t>(position % kBlockTokens);
  Place place;
  place.key_tile = block.keys + cpu::KeyTileOffset(shape.k_type, shape.k_dim, token);
  place.key_column = static_cast<int>(token % cpu::kKeyTileTokens);
  place.key_scales = block.key_scales + token * cpu::KvScaleBytes(shape.k_type, shape.k_dim);
  place.value_tile = block.values + cpu::ValueTileOffset(shape.v_type, shape.v_dim, token);
  place.value_column = static_cast<int>(token % cpu::kValueTileTokens);
  place.value_scales = block.value_scales + token * cpu::KvScaleBytes(shape.v_type, shape.v_dim);
  return place;
}

const PassView::Work& PassView::WorkOf(int layer, int64_t row) const {
  const std::span<const Work> pieces = work(layer);
  const auto next = std::ranges::upper_bound(pieces, row, {}, &Work::first_row);
  return *(next - 1);
}

std::span<const cpu::KvRun> PassView::Runs(int layer, int head, const Work& work,
                                           std::span<cpu::KvRun> out) const {
  const Lanes lanes = cache_->LanesOf(layer, head);
  const std::vector<BlockRun>& runs = groups_[group_of_layer(layer)].runs;
  size_t count = 0;
  for (size_t i = work.runs_begin; i < work.runs_end; ++i) {
    const BlockRun& run = runs[i];
    const BlockPlace block = lanes.At(run.block);
    out[count++] = {.keys = block.keys,
                    .values = block.values,
                    .first_position = run.first_position,
                    .count = run.count,
                    .key_scales = block.key_scales,
                    .value_scales = block.value_scales,
                    .rows = run.rows};
  }
  return out.first(count);
}

std::span<const PassView::BlockRun> PassView::BlockRuns(int layer, const Work& work) const {
  const std::vector<BlockRun>& runs = groups_[group_of_layer(layer)].runs;
  return std::span(runs).subspan(work.runs_begin, work.runs_end - work.runs_begin);
}

int64_t PassView::EndOf(int layer, const Work& work) const {
  const std::vector<BlockRun>& runs = groups_[group_of_layer(layer)].runs;
  int64_t end = 0;
  for (size_t i = work.runs_begin; i < work.runs_end; ++i) {
    end = std::max(end, runs[i].first_position + runs[i].count);
  }
  return end;
}

std::span<const cpu::HiddenPositions> PassView::Hidden(int layer, const Work& work) const {
  const std::vector<cpu::HiddenPositions>& hidden = groups_[group_of_layer(layer)].hidden;
  return std::span(hidden).subspan(work.hidden_begin, work.hidden_end - work.hidden_begin);
}

}  // namespace kvant::kv
