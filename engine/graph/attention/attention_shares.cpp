#include "engine/graph/attention/attention_shares.h"

#include "cpu/kernels/attention.h"
#include "engine/graph/cut.h"
#include "engine/kv/pass_view.h"

namespace kvant::graph {
namespace {

// Rows that are attended to together, as kv::PassView makes them.
struct TaskRows {
  int64_t rows = 0;
  Range seen = {0, 0};
  double positions = 0;  // over all rows
};

std::vector<TaskRows> TasksOf(const AttentionShape& shape, const PassShape& pass) {
  std::vector<TaskRows> tasks;
  for (const PassShape::Part& part : pass.parts) {
    for (int64_t position = part.end - part.rows; position < part.end; ++position) {
      const bool begins = position == part.end - part.rows;
      const bool joins = begins && part.shares_cache && !tasks.empty() &&
                         tasks.back().rows + part.rows <= kv::kRowTile;
      if (!joins && (begins || position % kv::kRowTile == 0)) tasks.emplace_back();
      TaskRows& task = tasks.back();
      const Range sees = shape.sees_all ? Range{0, part.source}
                                        : Range{shape.FirstVisible(position), position + 1};
      task.seen.begin = task.rows == 0 ? sees.begin : std::min(task.seen.begin, sees.begin);
      task.seen.end = std::max(task.seen.end, sees.end);
      task.positions += static_cast<double>(sees.end - sees.begin);
      ++task.rows;
    }
  }
  return tasks;
}

}  // namespace

int64_t CountRowTiles(const PassShape& pass) {
  int64_t tiles = 0;
  for (const PassShape::Part& part : pass.parts) {
    if (part.rows == 0) continue;
    tiles += (part.end - 1) / kv::kRowTile - (part.end - part.rows) / kv::kRowTile + 1;
  }
  return tiles;
}

int64_t SpansOf(const Range& positions) {
  return (positions.end - 1) / cpu::kAttentionSpan - positions.begin / cpu::kAttentionSpan + 1;
}

std::vector<ShareWork> AttentionShares(const AttentionShape& shape, const PassShape& pass,
                                       const Work& all, int64_t shares) {
  const std::vector<TaskRows> rows = TasksOf(shape, pass);
  std::vector<ShareWork> result(static_cast<size_t>(shares));
  int64_t spans = 1;
  int64_t partials = 0;  // of a task at most, in rows
  double total = 0;
  for (const TaskRows& task : rows) {
    spans = std::max(spans, SpansOf(task.seen));
    partials = std::max(partials, SpansOf(task.seen) * task.rows);
    total += task.positions;
  }
  const auto tasks = std::ssize(rows) * shape.kv_heads;
  const bool fits = std::ssize(rows) * partials <= kSlicedRows * spans;
  const int64_t slices = fits ? SlicesOf(tasks, spans, shares) : 1;
  if (total == 0) return result;
  const double share_of_head = 1.0 / static_cast<double>(shape.kv_heads);
  for (int64_t share = 0; share < shares; ++share) {
    double positions = 0;
    for (int64_t i = PlaceInTurn({share, shares}); i < tasks * slices; i += shares) {
      const TaskRows& task = rows[static_cast<size_t>(i / slices / shape.kv_heads)];
      // A slice is some of the task's spans; the last span may be short.
      const int64_t of_task = SpansOf(task.seen);
      const int64_t slice = i % slices;
      const int64_t first = task.seen.begin / cpu::kAttentionSpan;
      const int64_t begin = (first + of_task * slice / slices) * cpu::kAttentionSpan;
      const int64_t end = (first + of_task * (slice + 1) / slices) * cpu::kAttentionSpan;
      const int64_t seen =
          std::min(end, task.seen.end) - std::min(std::max(begin, task.seen.begin), task.seen.end);
      positions += task.positions * static_cast<double>(std::max<int64_t>(0, seen)) /
                   static_cast<double>(task.seen.end - task.seen.begin);
    }
    ShareWork& taken = result[static_cast<size_t>(share)];
    taken.units = positions * share_of_head;
    taken.work = all * (taken.units / total);
  }
  return result;
}

}  // namespace kvant::graph
