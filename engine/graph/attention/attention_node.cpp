// Attention over the cache, cut into tasks and slices for the team.
#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/aligned_buffer.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/table.h"
#include "cpu/kernels/token_count.h"
#include "cpu/kv_format_list.h"
#include "engine/graph/activations.h"
#include "engine/graph/attention/attention_nodes.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/attention/attention_shares.h"
#include "engine/graph/attention/latent_nodes.h"
#include "engine/graph/attention/uncached_attention.h"
#include "engine/graph/cut.h"
#include "engine/graph/device/device_attention.h"
#include "engine/graph/plan.h"
#include "engine/kv/pass_view.h"

namespace kvant::graph {
namespace {

using kv::kRowTile;

// More than a plan has nodes: a run of a stage and a node make one number.
constexpr uint64_t kTicketsOfRun = 1 << 16;

class AttentionNode final : public Node {
 public:
  AttentionNode(const cpu::KernelTable& kernels, int cache_id, const AttentionShape& shape,
                float scale, const AttentionInput& in, const Activations& out)
      : Node(fmt::format("layer.{}.attention", cache_id), in.ids(), out.ids()),
        kernels_(kernels),
        cache_id_(cache_id),
        shape_(shape),
        heads_per_kv_(shape.HeadsPerKv()),
        scale_(scale),
        in_(in),
        out_(out) {}

  // A task is a piece of work for one kv head. Shares take tasks in turn, not in stretches, because
  // later rows see more positions. Where tasks are few, each is cut into slices of positions.
  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    if (pass.kv == nullptr) return RunUncached(pass, member);
    if (pass.OnDevice(cache_id_)) return RunOnDevice(pass, member);
    if (Expanded(pass)) return;
    const std::span<const kv::PassView::Work> work = pass.kv->work(cache_id_);
    const int64_t tasks = static_cast<int64_t>(work.size()) * shape_.kv_heads;
    const int64_t slices = SliceCount(pass, tasks, member.count);
    for (int64_t i = PlaceInTurn(ShareOf(member)); i < tasks * slices; i += member.count) {
      const int64_t task = i / slices;
      const Task place = {work[static_cast<size_t>(task / shape_.kv_heads)],
                          task % shape_.kv_heads};
      slices == 1 ? RunTask(pass, place, pass.Scratch(member))
                  : RunSlice(pass, place, {task, i % slices, slices}, pass.Scratch(member));
    }
  }

  size_t ScratchBytes(const PassLimits& limits) const override {
    const size_t cached =
        RunBytes(limits) + QueryBytes() + PositionBytes() +
        kernels_.attention_scratch_bytes(kRowTile, static_cast<int>(heads_per_kv_),
                                         static_cast<int>(shape_.k_dim),
                                         static_cast<int>(shape_.v_dim), key_form());
    if (limits.kv_cache) return cached;
    return std::max(cached, UncachedScratchBytes(shape_, limits.positions()));
  }

  size_t SharedBytes(const PassLimits& limits) const override {
    if (limits.shares < 2 * shape_.kv_heads) return 0;
    return static_cast<size_t>(kSlicedRows * shape_.heads * SpansOf({0, limits.positions()})) *
           PartialBytes();
  }

  size_t DeviceBytes(const PassLimits& limits) const override {
    const int64_t spans = (limits.context + cuda::kSpanPositions - 1) / cuda::kSpanPositions;
    return DevicePartialBytes(shape_, limits.chunk, spans);
  }

  void AddWork(const PassShape& pass, Work& work) const override {
    for (const PassShape::Part& part : pass.parts) {
      double seen = 0;  // positions, over all rows
      for (int64_t position = part.end - part.rows; position < part.end; ++position) {
        seen += static_cast<double>(shape_.sees_all ? part.source
                                                    : position + 1 - shape_.FirstVisible(position));
      }
      const auto add = [&](bool int8, int64_t dim) {
        (int8 ? work.int8_macs : work.float_macs) += seen * static_cast<double>(shape_.heads * dim);
      };
      const bool expanded =
          shape_.latent.has_value() && FormOf(*shape_.latent, pass, part) == LatentForm::kExpanded;
      if (!expanded) {
        const int64_t value_uses = shape_.latent.has_value() ? 2 : 1;  // as keys, too
        add(pass.cache.has_value() && cpu::KvHasScales(pass.cache->k_type), shape_.k_dim);
        add(pass.cache.has_value() && cpu::KvHasScales(pass.cache->v_type),
            value_uses * shape_.v_dim);
      }
      if (!pass.cache.has_value() || part.shares_cache) continue;
      const int64_t visible =
          shape_.sees_all ? part.source : part.end - shape_.FirstVisible(part.end - part.rows);
      work.cache_bytes +=
          static_cast<double>(visible) * static_cast<double>(BytesPerPosition(*pass.cache));
    }
  }

  std::vector<ShareWork> SharesOf(const PassShape& pass, int64_t shares) const override {
    Work all;
    AddWork(pass, all);
    return AttentionShares(shape_, pass, all, shares);
  }

  std::string Describe() const override {
    if (shape_.latent.has_value()) {
      return fmt::format("{} heads, latents of {} + {}, all positions {}", shape_.heads,
                         shape_.v_dim, shape_.k_dim, kernels_.isa);
    }
    return fmt::format(
        "{} heads, {} kv heads x {}, {}{}{}{}{}{} {}", shape_.heads, shape_.kv_heads, shape_.k_dim,
        DescribeWindow(),
        shape_.score_cap == 0 ? "" : fmt::format(", scores within {}", shape_.score_cap),
        shape_.bias_slopes.empty() ? "" : ", less by distance",
        shape_.distances.values.empty() ? "" : ", plus a number for each distance",
        shape_.sinks.empty() ? "" : ", sinks", out_.int8 != kNoValue ? " + quantize int8" : "",
        kernels_.isa);
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

  std::string DescribeWindow() const {
    if (shape_.sees_all) return "all positions of a source";
    if (shape_.window == 0) return "all positions";
    const bool sections = shape_.window_kind == cpu::WindowKind::kSections;
    return fmt::format("{} {}", sections ? "sections of" : "window", shape_.window);
  }

  bool is_latent() const { return shape_.latent.has_value(); }
  cpu::KeyForm key_form() const {
    return is_latent() ? cpu::KeyForm::kValueFirst : cpu::KeyForm::kStored;
  }
  // Another node computes the pass.
  bool Expanded(const PassContext& pass) const {
    return is_latent() && FormOf(*shape_.latent, pass) == LatentForm::kExpanded;
  }
  // The head of the cache layer that a task reads.
  int CacheHead(int64_t kv_head) const { return is_latent() ? 0 : static_cast<int>(kv_head); }

  // Room for the queries of a task, where they are rotated before they meet latents.
  size_t QueryBytes() const {
    if (!is_latent()) return 0;
    return static_cast<size_t>(kRowTile * heads_per_kv_ * shape_.query_dim()) * sizeof(float);
  }

  // Room for what the rows of a task see, where that does not end at their own positions.
  size_t PositionBytes() const {
    return shape_.sees_all ? static_cast<size_t>(kRowTile) * sizeof(int64_t) : 0;
  }

  // The bytes that the cache keeps of a position for this layer.
  uint64_t BytesPerPosition(const PassShape::CacheTypes& types) const {
    kv::GroupShape stored;
    stored.kv_heads = static_cast<int>(shape_.cached_heads());
    stored.k_dim = static_cast<int>(shape_.k_dim);
    stored.v_dim = static_cast<int>(shape_.v_dim);
    stored.k_type = types.k_type;
    stored.v_type = types.v_type;
    stored.layers = {cache_id_};
    return stored.bytes_per_token();
  }

  // The scratch begins with room for the runs of one kv head.
  static size_t RunBytes(const PassLimits& limits) {
    const int64_t runs = kv::PassView::RunsMax(limits.positions(), limits.sequences);
    return RoundUp(static_cast<size_t>(runs) * sizeof(cpu::KvRun), 64);
  }

  // The bytes of a query vector's partial result in one span.
  size_t PartialBytes() const {
    return static_cast<size_t>(cpu::AttentionPartialFloats(static_cast<int>(shape_.v_dim))) *
           sizeof(float);
  }

  // The positions that some row of the work sees.
  Range Seen(const PassContext& pass, const kv::PassView::Work& work) const {
    if (shape_.sees_all) return {0, pass.kv->EndOf(cache_id_, work)};
    Range seen = {pass.positions[static_cast<size_t>(work.first_row)], 0};
    for (int64_t row = work.first_row; row < work.first_row + work.rows; ++row) {
      const int64_t position = pass.positions[static_cast<size_t>(row)];
      seen.begin = std::min(seen.begin, position);
      seen.end = std::max(seen.end, position + 1);
    }
    seen.begin = shape_.FirstVisible(seen.begin);
    return seen;
  }

  // The bytes of a task's partial results at most.
  size_t TaskPartialBytes(const PassContext& pass) const {
    size_t bytes = 0;
    for (const kv::PassView::Work& work : pass.kv->work(cache_id_)) {
      const int64_t spans = SpansOf(Seen(pass, work));
      bytes =
          std::max(bytes, static_cast<size_t>(spans * work.rows * heads_per_kv_) * PartialBytes());
    }
    return bytes;
  }

  // The number of slices that every task of the pass is cut into.
  int64_t SliceCount(const PassContext& pass, int64_t tasks, int64_t shares) const {
    if (SlicesOf(tasks, shares, shares) == 1) return 1;
    int64_t spans = 1;
    for (const kv::PassView::Work& work : pass.kv->work(cache_id_)) {
      spans = std::max(spans, SpansOf(Seen(pass, work)));
    }
    const bool fits = static_cast<size_t>(tasks) * TaskPartialBytes(pass) <= pass.shared.size();
    return fits ? SlicesOf(tasks, spans, shares) : 1;
  }

  // The kernel's task: queries and runs, and the scratch that the runs leave.
  cpu::AttentionTask KernelTask(const PassContext& pass, const Task& place,
                                std::span<std::byte> scratch) const {
    const kv::GroupShape& stored = pass.kv->shape(cache_id_);
    const size_t run_bytes = RunBytes(pass.limits);
    const std::span<cpu::KvRun> runs(reinterpret_cast<cpu::KvRun*>(scratch.data()),
                                     run_bytes / sizeof(cpu::KvRun));
    const kv::PassView::Work& work = place.work;
    cpu::AttentionTask task;
    task.queries = pass.FloatRow(in_.queries, work.first_row) +
                   place.kv_head * heads_per_kv_ * shape_.query_dim();
    task.query_row_stride = pass.RowFloats(in_.queries);
    task.key_form = key_form();
    task.out =
        pass.FloatRow(out_.floats, work.first_row) + place.kv_head * heads_per_kv_ * shape_.v_dim;
    task.out_row_stride = pass.RowFloats(out_.floats);
    task.rows = work.rows;
    task.positions = pass.positions.data() + work.first_row;
    task.heads_per_kv = static_cast<int>(heads_per_kv_);
    task.k_dim = static_cast<int>(shape_.k_dim);
    task.v_dim = static_cast<int>(shape_.v_dim);
    task.k_type = stored.k_type;
    task.v_type = stored.v_type;
    task.scale = scale_;
    task.window = shape_.window;
    task.window_kind = shape_.window_kind;
    task.score_cap = shape_.score_cap;
    task.bias_slopes = OfHeads(shape_.bias_slopes, place.kv_head);
    task.sinks = OfHeads(shape_.sinks, place.kv_head);
    task.runs = pass.kv->Runs(cache_id_, CacheHead(place.kv_head), work, runs);
    task.hidden = pass.kv->Hidden(cache_id_, work);
    task.scratch = scratch.subspan(run_bytes + QueryBytes() + PositionBytes());
    if (!shape_.as_few) task.count = pass.TokenCount(in_.queries);
    task.distance_bias = DistancesOf(place.kv_head);
    if (shape_.sees_all) {
      int64_t* last = reinterpret_cast<int64_t*>(scratch.data() + run_bytes + QueryBytes());
      std::fill_n(last, work.rows, pass.kv->EndOf(cache_id_, work) - 1);
      task.origins = std::exchange(task.positions, last);
    }
    if (is_latent() && stored.rotate_values) {
      TurnQueries(task, reinterpret_cast<float*>(scratch.data() + run_bytes));
    }
    return task;
  }

  // Where the cache rotates latents, the parts of queries that meet latents are rotated, too, in a
  // copy. (The parts that meet keys were rotated when the keys were stored.)
  void TurnQueries(cpu::AttentionTask& task, float* copy) const {
    const int64_t floats = heads_per_kv_ * shape_.query_dim();
    for (int64_t row = 0; row < task.rows; ++row) {
      float* queries =
          std::copy_n(task.queries + row * task.query_row_stride, floats, copy + row * floats) -
          floats;
      for (int64_t head = 0; head < heads_per_kv_; ++head) {
        kernels_.rotate(queries + head * shape_.query_dim(), 1, shape_.v_dim);
      }
    }
    task.queries = copy;
    task.query_row_stride = floats;
  }

  // The entries of `values`, [heads], for the query heads of a kv head; null where that is empty.
  const float* OfHeads(const std::vector<float>& values, int64_t kv_head) const {
    return values.empty() ? nullptr : values.data() + kv_head * heads_per_kv_;
  }

  cpu::DistanceBias DistancesOf(int64_t kv_head) const {
    const DistanceTable& table = shape_.distances;
    cpu::DistanceBias bias = {nullptr, table.least, table.count};
    if (!table.values.empty()) {
      bias.values = table.values.data() + kv_head * heads_per_kv_ * bias.stride();
    }
    return bias;
  }

  void RunTask(const PassContext& pass, const Task& place, std::span<std::byte> scratch) const {
    kernels_.attention(KernelTask(pass, place, scratch));
    Finish(pass, place.work.first_row, place.work.rows, place.kv_head);
  }

  // The first member drives the device; then each share rotates and quantizes its rows.
  void RunOnDevice(const PassContext& pass, const ThreadPool::Member& member) const {
    const int64_t rows = pass.RowCount(in_.queries);
    const Range range = OwnedRange(rows, 1, member.index, member.count);
    // A layer that reads what another has stored has queries alone.
    const bool stores = is_latent() || in_.queries == in_.kv;
    const bool turns = is_latent() && pass.kv->shape(cache_id_).rotate_values;
    pass.device->Attend(
        {.ticket = pass.run * kTicketsOfRun + static_cast<uint64_t>(number()) + 1,
         .cache_id = cache_id_,
         .shape = &shape_,
         .scale = scale_,
         .many = pass.TokenCount(in_.queries) == cpu::TokenCount::kMany,
         .rows = pass.Floats(in_.queries),
         .row_count = rows,
         .row_floats = pass.RowFloats(in_.queries),
         .prepare = turns ? [&] { TurnAllQueries(pass, rows); } : std::function<void()>(),
         .stored = stores ? pass.Floats(in_.kv) : nullptr,
         .stored_floats = stores ? pass.RowFloats(in_.kv) : 0,
         .key_column = in_.key_column + (is_latent() ? shape_.v_dim : 0),
         .value_column = in_.value_column,
         .out = pass.Floats(out_.floats),
         .out_row_floats = pass.RowFloats(out_.floats)},
        range.end);
    for (int64_t head = 0; head < shape_.kv_heads && range.begin < range.end; ++head) {
      Finish(pass, range.begin, range.end - range.begin, head);
    }
  }

  // Rotates the queries as TurnQueries does, in place.
  void TurnAllQueries(const PassContext& pass, int64_t rows) const {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t head = 0; head < shape_.heads; ++head) {
        kernels_.rotate(pass.FloatRow(in_.queries, row) + head * shape_.query_dim(), 1,
                        shape_.v_dim);
      }
    }
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
    kernels_.attention(task);
    std::atomic<int32_t>& arrived = pass.arrivals[static_cast<size_t>(slice.task)];
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < slice.count) return;
    arrived.store(0, std::memory_order_relaxed);
    task.slice.begin = task.slice.first;
    task.slice.end = task.slice.first + spans;
    kernels_.attention_merge(task);
    Finish(pass, place.work.first_row, place.work.rows, place.kv_head);
  }

  // Rotates the results of a kv head back where the cache rotates values, and quantizes them.
  void Finish(const PassContext& pass, int64_t first_row, int64_t rows, int64_t kv_head) const {
    const int64_t cols = heads_per_kv_ * shape_.v_dim;
    const bool rotated = pass.kv != nullptr && pass.kv->shape(cache_id_).rotate_values;
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      float* out = pass.FloatRow(out_.floats, row) + kv_head * cols;
      if (rotated) kernels_.rotate(out, heads_per_kv_, shape_.v_dim);
      if (out_.int8 == kNoValue) continue;
      if (!is_latent()) {
        pass.Quantize(kernels_, out, cols, {out_.int8, row, out_.cols, kv_head * cols});
        continue;
      }
      for (int64_t head = 0; head < heads_per_kv_; ++head) {
        const int64_t record = row * shape_.heads + kv_head * heads_per_kv_ + head;
        pass.Quantize(kernels_, out + head * shape_.v_dim, shape_.v_dim,
                      {out_.int8, record, shape_.v_dim, 0});
      }
    }
  }

  // The keys and values of a head, where there is no cache: of the source, or of the pass.
  struct UncachedKeys {
    const float* keys;
    const float* values;
    int64_t stride;
    int64_t rows;
  };
  UncachedKeys KeysOf(const PassContext& pass, int64_t head) const {
    if (in_.kv != kNoValue) {
      const float* row = pass.Floats(in_.kv);
      return {row + in_.key_column + head * shape_.k_dim,
              row + in_.value_column + head * shape_.v_dim, pass.RowFloats(in_.kv),
              pass.RowCount(in_.kv)};
    }
    const float* row = pass.source->layers[static_cast<size_t>(cache_id_)].data();
    return {row + head * shape_.k_dim, row + shape_.kv_heads * shape_.k_dim + head * shape_.v_dim,
            shape_.kv_heads * (shape_.k_dim + shape_.v_dim), pass.source->positions};
  }

  void RunUncached(const PassContext& pass, const ThreadPool::Member& member) const {
    const int64_t rows = pass.RowCount(in_.queries);
    const int64_t tiles = (rows + kRowTile - 1) / kRowTile;
    for (int64_t task = PlaceInTurn(ShareOf(member)); task < tiles * shape_.kv_heads;
         task += member.count) {
      const int64_t begin = task / shape_.kv_heads * kRowTile;
      const int64_t end = std::min(rows, begin + kRowTile);
      const int64_t kv_head = task % shape_.kv_heads;
      const UncachedKeys kv = KeysOf(pass, CacheHead(kv_head));
      Attend({.shape = shape_,
              .scale = scale_,
              .bias_slopes = OfHeads(shape_.bias_slopes, kv_head),
              .sinks = OfHeads(shape_.sinks, kv_head),
              .distances = DistancesOf(kv_head),
              .queries = pass.Floats(in_.queries) + kv_head * heads_per_kv_ * shape_.query_dim(),
              .keys = kv.keys,
              .values = kv.values,
              .out = pass.Floats(out_.floats) + kv_head * heads_per_kv_ * shape_.v_dim,
              .query_stride = pass.RowFloats(in_.queries),
              .kv_stride = kv.stride,
              .kv_rows = kv.rows,
              .out_stride = pass.RowFloats(out_.floats),
              .row_begin = begin,
              .row_end = end,
              .scratch = pass.Scratch(member)});
      Finish(pass, begin, end - begin, kv_head);
    }
  }

  const cpu::KernelTable& kernels_;
  int cache_id_;
  AttentionShape shape_;
  int64_t heads_per_kv_;
  float scale_;
  AttentionInput in_;
  Activations out_;
};

}  // namespace

std::vector<ValueId> AttentionInput::ids() const {
  return queries == kv || kv == kNoValue ? std::vector{queries} : std::vector{queries, kv};
}

std::unique_ptr<Node> MakeAttention(const cpu::KernelTable& kernels, int cache_id,
                                    const AttentionShape& shape, float scale, ValueId qkv,
                                    const Activations& out) {
  const AttentionInput in = {qkv, qkv, shape.key_column(), shape.value_column()};
  return MakeAttention(kernels, cache_id, shape, scale, in, out);
}

std::unique_ptr<Node> MakeAttention(const cpu::KernelTable& kernels, int cache_id,
                                    const AttentionShape& shape, float scale,
                                    const AttentionInput& in, const Activations& out) {
  return std::make_unique<AttentionNode>(kernels, cache_id, shape, scale, in, out);
}

// Units of the kernel are rows of this many query vectors, so tasks have no fewer heads where the
// number of heads allows it.
constexpr int64_t kTaskHeads = 8;

std::unique_ptr<Node> MakeAbsorbedAttention(const cpu::KernelTable& kernels, int cache_id,
                                            const LatentShape& shape, float scale, ValueId absorbed,
                                            const HeadColumns& kv, ValueId out, ValueId records) {
  AttentionShape attention;
  int64_t task_heads = std::min(kTaskHeads, shape.heads);
  while (shape.heads % task_heads != 0) --task_heads;
  attention.heads = shape.heads;
  attention.kv_heads = shape.heads / task_heads;
  attention.k_dim = shape.rope;
  attention.v_dim = shape.latent;
  attention.latent = shape;
  const AttentionInput in = {absorbed, kv.value, kv.first, kv.first};
  return std::make_unique<AttentionNode>(
      kernels, cache_id, attention, scale, in,
      Activations{.floats = out, .int8 = records, .cols = shape.heads * shape.latent});
}

bool QuantizesAttention(const AttentionShape& shape) {
  return shape.heads / shape.kv_heads * shape.v_dim % 32 == 0;
}

}  // namespace kvant::graph
