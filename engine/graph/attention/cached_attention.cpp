#include "engine/graph/attention/cached_attention.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/table.h"
#include "cpu/kernels/token_count.h"
#include "cpu/kv_kernels.h"
#include "engine/graph/attention/attention_shares.h"
#include "engine/graph/attention/choice.h"
#include "engine/graph/attention/gathered_rows.h"
#include "engine/graph/cut.h"
#include "engine/kv/pass_view.h"

namespace kvant::graph {
namespace {

using kv::kRowTile;

class CachedAttention {
 public:
  explicit CachedAttention(const AttentionParts& parts) : parts_(parts) {}

  // A task is a piece of work for one kv head. Shares take tasks in turn, not in stretches, because
  // later rows see more positions. Where tasks are few, each is cut into slices of positions.
  void Run(const PassContext& pass, const ThreadPool::Member& member) const {
    if (parts_.shape.index.has_value() && Chooses(*parts_.shape.index, pass)) {
      return RunChosen(pass, member);
    }
    const std::span<const kv::PassView::Work> work = pass.kv->work(parts_.cache_id);
    const int64_t tasks = static_cast<int64_t>(work.size()) * parts_.shape.kv_heads;
    const int64_t slices = SliceCount(pass, tasks, member.count);
    for (int64_t i = PlaceInTurn(ShareOf(member)); i < tasks * slices; i += member.count) {
      const int64_t task = i / slices;
      const Task place = {work[static_cast<size_t>(task / parts_.shape.kv_heads)],
                          task % parts_.shape.kv_heads};
      slices == 1 ? RunTask(pass, place, pass.Scratch(member))
                  : RunSlice(pass, place, {task, i % slices, slices}, pass.Scratch(member));
    }
  }

  size_t ScratchBytes(const PassLimits& limits) const {
    return RunBytes(limits) + QueryBytes() + PositionBytes() + ChosenBytes(limits) +
           parts_.kernels.attention_scratch_bytes(kRowTile, static_cast<int>(parts_.heads_per_kv),
                                                  static_cast<int>(parts_.shape.k_dim),
                                                  static_cast<int>(parts_.shape.v_dim), key_form());
  }

  size_t SharedBytes(const PassLimits& limits) const {
    if (limits.shares < 2 * parts_.shape.kv_heads) return 0;
    return static_cast<size_t>(kSlicedRows * parts_.shape.heads *
                               SpansOf({0, limits.positions()})) *
           PartialBytes();
  }

 private:
  struct Task {
    const kv::PassView::Work& work;
    int64_t kv_head;
  };
  // Slice number `index` of `count` of a task.
  struct Slice {
    int64_t task;
    int64_t index;
    int64_t count;
  };

  cpu::KeyForm key_form() const {
    return parts_.is_latent() ? cpu::KeyForm::kValueFirst : cpu::KeyForm::kStored;
  }

  // Room for the queries of a task, where they are rotated before they meet latents.
  size_t QueryBytes() const {
    if (!parts_.is_latent()) return 0;
    return static_cast<size_t>(kRowTile * parts_.heads_per_kv * parts_.shape.query_dim()) *
           sizeof(float);
  }

  // Room for what the rows of a task see, where that does not end at their own positions.
  size_t PositionBytes() const {
    return parts_.shape.sees_all ? static_cast<size_t>(kRowTile) * sizeof(int64_t) : 0;
  }

  bool MayChoose(const PassLimits& limits) const {
    return parts_.shape.index.has_value() && limits.positions() > parts_.shape.index->all_until();
  }

  // Whether what rows are given to see is copied: latents, and units that are no whole key tiles.
  bool CopiesChosen() const {
    return parts_.is_latent() || parts_.shape.index->block % cpu::kKeyTileTokens != 0;
  }

  // The most positions that a row is given to see.
  int64_t ChosenMax() const { return parts_.shape.index->units_max() * parts_.shape.index->block; }

  // Room for what a row has been given to see: rows that are copied, the number of the last one,
  // and the positions of them all; or the runs of blocks.
  size_t ChosenBytes(const PassLimits& limits) const {
    if (!MayChoose(limits)) return 0;
    const IndexShape& index = *parts_.shape.index;
    if (!CopiesChosen()) {
      const int64_t runs =
          index.units_max() + kv::PassView::RunsMax(limits.positions(), limits.sequences);
      return RoundUp(static_cast<size_t>(runs) * sizeof(cpu::KvRun), 64);
    }
    return 64 + PositionListBytes() +
           GatheredBytes(ChosenMax(), parts_.shape.k_dim, parts_.shape.v_dim);
  }

  size_t PositionListBytes() const {
    return RoundUp(static_cast<size_t>(ChosenMax()) * sizeof(int32_t), 64);
  }

  // The scratch begins with room for the runs of one kv head.
  static size_t RunBytes(const PassLimits& limits) {
    const int64_t runs = kv::PassView::RunsMax(limits.positions(), limits.sequences);
    return RoundUp(static_cast<size_t>(runs) * sizeof(cpu::KvRun), 64);
  }

  // The bytes of a query vector's partial result in one span.
  size_t PartialBytes() const {
    return static_cast<size_t>(cpu::AttentionPartialFloats(static_cast<int>(parts_.shape.v_dim))) *
           sizeof(float);
  }

  // The positions that some row of the work sees.
  Range Seen(const PassContext& pass, const kv::PassView::Work& work) const {
    if (parts_.shape.sees_all) return {0, pass.kv->EndOf(parts_.cache_id, work)};
    Range seen = {pass.positions[static_cast<size_t>(work.first_row)], 0};
    for (int64_t row = work.first_row; row < work.first_row + work.rows; ++row) {
      const int64_t position = pass.positions[static_cast<size_t>(row)];
      seen.begin = std::min(seen.begin, position);
      seen.end = std::max(seen.end, position + 1);
    }
    seen.begin = parts_.shape.FirstVisible(seen.begin);
    return seen;
  }

  // The bytes of a task's partial results at most.
  size_t TaskPartialBytes(const PassContext& pass) const {
    size_t bytes = 0;
    for (const kv::PassView::Work& work : pass.kv->work(parts_.cache_id)) {
      const int64_t spans = SpansOf(Seen(pass, work));
      bytes = std::max(
          bytes, static_cast<size_t>(spans * work.rows * parts_.heads_per_kv) * PartialBytes());
    }
    return bytes;
  }

  // The number of slices that every task of the pass is cut into.
  int64_t SliceCount(const PassContext& pass, int64_t tasks, int64_t shares) const {
    if (SlicesOf(tasks, shares, shares) == 1) return 1;
    int64_t spans = 1;
    for (const kv::PassView::Work& work : pass.kv->work(parts_.cache_id)) {
      spans = std::max(spans, SpansOf(Seen(pass, work)));
    }
    const bool fits = static_cast<size_t>(tasks) * TaskPartialBytes(pass) <= pass.shared.size();
    return fits ? SlicesOf(tasks, spans, shares) : 1;
  }

  const cpu::KernelTable& KernelsOf(const cpu::AttentionTask& task) const {
    return cpu::KernelsFor(parts_.kernels, task.k_type, task.v_type);
  }

  // The kernel's task: queries and runs, and the scratch that the runs leave.
  cpu::AttentionTask KernelTask(const PassContext& pass, const Task& place,
                                std::span<std::byte> scratch) const {
    const kv::GroupShape& stored = pass.kv->shape(parts_.cache_id);
    const size_t run_bytes = RunBytes(pass.limits);
    const std::span<cpu::KvRun> runs(reinterpret_cast<cpu::KvRun*>(scratch.data()),
                                     run_bytes / sizeof(cpu::KvRun));
    const kv::PassView::Work& work = place.work;
    cpu::AttentionTask task;
    task.queries = pass.FloatRow(parts_.in.queries, work.first_row) +
                   place.kv_head * parts_.heads_per_kv * parts_.shape.query_dim();
    task.query_row_stride = pass.RowFloats(parts_.in.queries);
    task.key_form = key_form();
    task.out = pass.FloatRow(parts_.out.floats, work.first_row) +
               place.kv_head * parts_.heads_per_kv * parts_.shape.v_dim;
    task.out_row_stride = pass.RowFloats(parts_.out.floats);
    task.rows = work.rows;
    task.positions = pass.positions.data() + work.first_row;
    task.heads_per_kv = static_cast<int>(parts_.heads_per_kv);
    task.k_dim = static_cast<int>(parts_.shape.k_dim);
    task.v_dim = static_cast<int>(parts_.shape.v_dim);
    task.k_type = stored.k_type;
    task.v_type = stored.v_type;
    task.scale = parts_.scale;
    task.window = parts_.shape.window;
    task.window_kind = parts_.shape.window_kind;
    task.score_cap = parts_.shape.score_cap;
    task.bias_slopes = parts_.OfHeads(parts_.shape.bias_slopes, place.kv_head);
    task.sinks = parts_.OfHeads(parts_.shape.sinks, place.kv_head);
    task.runs = pass.kv->Runs(parts_.cache_id, parts_.CacheHead(place.kv_head), work, runs);
    task.hidden = pass.kv->Hidden(parts_.cache_id, work);
    task.scratch =
        scratch.subspan(run_bytes + QueryBytes() + PositionBytes() + ChosenBytes(pass.limits));
    if (!parts_.shape.as_few) task.count = pass.TokenCount(parts_.in.queries);
    task.distance_bias = parts_.DistancesOf(place.kv_head);
    if (parts_.shape.sees_all) {
      int64_t* last = reinterpret_cast<int64_t*>(scratch.data() + run_bytes + QueryBytes());
      std::fill_n(last, work.rows, pass.kv->EndOf(parts_.cache_id, work) - 1);
      task.origins = std::exchange(task.positions, last);
    }
    if (parts_.is_latent() && stored.rotate_values) {
      TurnQueries(task, reinterpret_cast<float*>(scratch.data() + run_bytes));
    }
    return task;
  }

  // Where the cache rotates latents, the parts of queries that meet latents are rotated, too, in a
  // copy. (The parts that meet keys were rotated when the keys were stored.)
  void TurnQueries(cpu::AttentionTask& task, float* copy) const {
    const int64_t floats = parts_.heads_per_kv * parts_.shape.query_dim();
    for (int64_t row = 0; row < task.rows; ++row) {
      float* queries =
          std::copy_n(task.queries + row * task.query_row_stride, floats, copy + row * floats) -
          floats;
      for (int64_t head = 0; head < parts_.heads_per_kv; ++head) {
        parts_.kernels.rotate(queries + head * parts_.shape.query_dim(), 1, parts_.shape.v_dim);
      }
    }
    task.queries = copy;
    task.query_row_stride = floats;
  }

  void RunTask(const PassContext& pass, const Task& place, std::span<std::byte> scratch) const {
    const cpu::AttentionTask task = KernelTask(pass, place, scratch);
    KernelsOf(task).attention(task);
    parts_.Finish(pass, place.work.first_row, place.work.rows, place.kv_head);
  }

  // Computes a slice; the thread that finishes the last slice of a task merges the results of all.
  void RunSlice(const PassContext& pass, const Task& place, const Slice& slice,
                std::span<std::byte> scratch) const {
    cpu::AttentionTask task = KernelTask(pass, place, scratch);
    const Range seen = Seen(pass, place.work);
    const int64_t spans = SpansOf(seen);
    task.slice.first = seen.begin / cpu::kAttentionSpan;
    task.slice.begin = task.slice.first + spans * slice.index / slice.count;
    task.slice.end = task.slice.first + spans * (slice.index + 1) / slice.count;
    task.slice.partials = reinterpret_cast<float*>(
        pass.shared.data() + static_cast<size_t>(slice.task) * TaskPartialBytes(pass));
    KernelsOf(task).attention(task);
    std::atomic<int32_t>& arrived = pass.arrivals[static_cast<size_t>(slice.task)];
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < slice.count) return;
    arrived.store(0, std::memory_order_relaxed);
    task.slice.begin = task.slice.first;
    task.slice.end = task.slice.first + spans;
    KernelsOf(task).attention_merge(task);
    parts_.Finish(pass, place.work.first_row, place.work.rows, place.kv_head);
  }

  // ---- Rows that see what was chosen for them ---------------------------------------------------

  // A task is a row with some kv heads: with all of them, unless there are fewer rows than threads,
  // since latents are copied once for each task.
  void RunChosen(const PassContext& pass, const ThreadPool::Member& member) const {
    const int64_t rows = pass.RowCount(parts_.in.queries);
    const int64_t kv_heads = parts_.shape.kv_heads;
    const int64_t threads = member.count / ThreadPool::kSharesPerThread;
    const int64_t pieces =
        std::clamp<int64_t>((threads + rows - 1) / std::max<int64_t>(rows, 1), 1, kv_heads);
    for (int64_t i = PlaceInTurn(ShareOf(member)); i < rows * pieces; i += member.count) {
      const int64_t piece = i % pieces;
      RunRow(pass, i / pieces, {kv_heads * piece / pieces, kv_heads * (piece + 1) / pieces},
             pass.Scratch(member));
    }
  }

  void RunRow(const PassContext& pass, int64_t row, const Range& kv_heads,
              std::span<std::byte> scratch) const {
    const kv::PassView::Work& all = pass.kv->WorkOf(parts_.cache_id, row);
    kv::PassView::Work work = all;
    work.first_row = row;
    work.rows = 1;
    std::byte* room = scratch.data() + RunBytes(pass.limits) + QueryBytes() + PositionBytes();
    cpu::KvRun gathered = {};
    for (int64_t kv_head = kv_heads.begin; kv_head < kv_heads.end; ++kv_head) {
      cpu::AttentionTask task = KernelTask(pass, {work, kv_head}, scratch);
      task.mask_row = row - all.first_row;
      const int32_t* choice =
          ChoiceOf(*parts_.shape.index, pass, parts_.in.choice, row, parts_.ChoiceNumber(kv_head));
      if (*choice != kSeesAll && !CopiesChosen()) {
        task.runs = CutRuns(task, UnitsOf(choice), reinterpret_cast<cpu::KvRun*>(room));
      } else if (*choice != kSeesAll) {
        // All heads of latents see the same rows.
        auto* last = reinterpret_cast<int64_t*>(room);
        if (kv_head == kv_heads.begin || !parts_.is_latent()) {
          const auto positions =
              PositionsOf(task, UnitsOf(choice), reinterpret_cast<int32_t*>(room + 64));
          gathered = GatherRows({task.k_type, task.v_type, task.k_dim, task.v_dim}, task.runs,
                                task.mask_row, positions, room + 64 + PositionListBytes());
          *last = gathered.count - 1;
        }
        task.runs = {&gathered, 1};
        task.positions = last;
        task.hidden = {};
        task.mask_row = 0;
      }
      KernelsOf(task).attention(task);
      parts_.Finish(pass, row, 1, kv_head);
    }
  }

  // The positions of units that the task's only row may see.
  std::span<const int32_t> PositionsOf(const cpu::AttentionTask& task,
                                       std::span<const int32_t> units, int32_t* out) const {
    const int64_t block = parts_.shape.index->block;
    const auto is_hidden = [&task](int64_t position) {
      return std::ranges::any_of(task.hidden, [&](const cpu::HiddenPositions& hidden) {
        return (hidden.rows >> (task.mask_row % cpu::kMaskedRowsMax) & 1) != 0 &&
               position >= hidden.begin && position < hidden.end;
      });
    };
    size_t count = 0;
    for (const int32_t unit : units) {
      const int64_t end = std::min(task.positions[0] + 1, (unit + 1) * block);
      for (int64_t position = unit * block; position < end; ++position) {
        if (!is_hidden(position)) out[count++] = static_cast<int32_t>(position);
      }
    }
    return {out, count};
  }

  // The parts of the task's runs that are in these blocks, which are whole key tiles.
  std::span<const cpu::KvRun> CutRuns(const cpu::AttentionTask& task,
                                      std::span<const int32_t> units, cpu::KvRun* out) const {
    const int64_t block = parts_.shape.index->block;
    size_t count = 0;
    size_t unit = 0;
    for (const cpu::KvRun& run : task.runs) {
      if ((run.rows >> (task.mask_row % cpu::kMaskedRowsMax) & 1) == 0) continue;
      const int64_t run_end = run.first_position + run.count;
      while (unit < units.size() && (units[unit] + 1) * block <= run.first_position) ++unit;
      for (size_t u = unit; u < units.size() && units[u] * block < run_end; ++u) {
        const int64_t begin = std::max(run.first_position, units[u] * block);
        const auto token = static_cast<size_t>(begin - run.first_position);
        cpu::KvRun part = run;
        part.keys += cpu::KeyTileOffset(task.k_type, task.k_dim, token);
        part.values += cpu::ValueTileOffset(task.v_type, task.v_dim, token);
        part.first_position = begin;
        part.count = std::min(run_end, (units[u] + 1) * block) - begin;
        part.key_scales = ScalesAt(run.key_scales, task.k_type, task.k_dim, token);
        part.value_scales = ScalesAt(run.value_scales, task.v_type, task.v_dim, token);
        out[count++] = part;
      }
    }
    return {out, count};
  }

  static const void* ScalesAt(const void* scales, KvType type, int dim, size_t token) {
    const size_t bytes = cpu::KvScaleBytes(type, dim);
    return bytes == 0 ? scales : static_cast<const std::byte*>(scales) + token * bytes;
  }

  const AttentionParts& parts_;
};

}  // namespace

void AttendCached(const AttentionParts& parts, const PassContext& pass,
                  const ThreadPool::Member& member) {
  CachedAttention(parts).Run(pass, member);
}

size_t CachedScratchBytes(const AttentionParts& parts, const PassLimits& limits) {
  return CachedAttention(parts).ScratchBytes(limits);
}

size_t CachedSharedBytes(const AttentionParts& parts, const PassLimits& limits) {
  return CachedAttention(parts).SharedBytes(limits);
}

}  // namespace kvant::graph
