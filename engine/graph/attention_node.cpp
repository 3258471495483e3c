// Rotary embedding with the cache write, and attention over the cache.
//
// Without a cache (StepContext::kv is null, the step is the whole sequence) attention is a plain
// loop in double precision over the step's own keys and values: no tiles, no blocks, no chunks. It
// is the oracle of the cached path.
#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "base/aligned_buffer.h"
#include "engine/graph/nodes.h"
#include "engine/kv/step_view.h"

namespace kvant::graph {
namespace {

using kv::kRowTile;

struct Columns {
  explicit Columns(const AttentionShape& shape)
      : key(shape.heads * shape.k_dim), value(key + shape.kv_heads * shape.k_dim) {}
  int64_t key;    // first column of the keys in qkv
  int64_t value;  // first column of the values
};

class RopeAndStoreNode final : public Node {
 public:
  RopeAndStoreNode(const cpu::KernelTable& kernels, int cache_id, const AttentionShape& shape,
                   const RopeSpec& rope, QkNorms norms, ValueId qkv, ValueId cos_sin)
      : Node(fmt::format("layer.{}.rope_store", cache_id), {qkv, cos_sin}, {qkv}),
        kernels_(kernels),
        cache_id_(cache_id),
        shape_(shape),
        style_(rope.style),
        n_rot_(rope.n_rot),
        norms_(std::move(norms)),
        qkv_(qkv),
        cos_sin_(cos_sin) {}

  // A task is one kv head with its query heads, and rows whose positions share no key tile with
  // another task's.
  void Run(const StepContext& step, const ThreadPool::Member& member) const override {
    if (step.kv == nullptr) return RunUncached(step, member);
    const std::span<const kv::RowTile> tiles = step.kv->tiles();
    const int64_t tasks = static_cast<int64_t>(tiles.size()) * shape_.kv_heads;
    const Range range = OwnedRange(tasks, 1, member.index, member.count);
    for (int64_t task = range.begin; task < range.end; ++task) {
      const kv::RowTile& tile = tiles[static_cast<size_t>(task / shape_.kv_heads)];
      for (int64_t row = tile.first_row; row < tile.first_row + tile.rows; ++row) {
        RunRow(step, row, task % shape_.kv_heads);
        StoreRow(step, tile.part, row, task % shape_.kv_heads);
      }
    }
  }

  std::string Describe() const override {
    return fmt::format("{}rope {} {} of {} + cache write {}",
                       norms_.query.empty() ? "" : "rms_norm of heads + ",
                       style_ == cpu::RopeStyle::kHalves ? "halves" : "interleaved", n_rot_,
                       shape_.k_dim, kernels_.isa);
  }

 private:
  void RunUncached(const StepContext& step, const ThreadPool::Member& member) const {
    const Range range = OwnedRange(step.RowCount(qkv_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      for (int64_t head = 0; head < shape_.kv_heads; ++head) RunRow(step, row, head);
    }
  }

  void RunRow(const StepContext& step, int64_t row, int64_t kv_head) const {
    const Columns columns(shape_);
    const int64_t group = shape_.heads / shape_.kv_heads;
    float* qkv = step.FloatRow(qkv_, row);
    const float* cos_sin = step.FloatRow(cos_sin_, row);
    float* queries = qkv + kv_head * group * shape_.k_dim;
    float* key = qkv + columns.key + kv_head * shape_.k_dim;
    if (!norms_.query.empty()) {
      for (int64_t head = 0; head < group; ++head)
        NormalizeHead(norms_.query, queries + head * shape_.k_dim);
      NormalizeHead(norms_.key, key);
    }
    kernels_.rope(queries, group, shape_.k_dim, n_rot_, style_, cos_sin);
    kernels_.rope(key, 1, shape_.k_dim, n_rot_, style_, cos_sin);
  }

  void StoreRow(const StepContext& step, int part, int64_t row, int64_t kv_head) const {
    const kv::GroupShape& stored = step.kv->shape(cache_id_);
    const Columns columns(shape_);
    const int64_t group = shape_.heads / shape_.kv_heads;
    float* qkv = step.FloatRow(qkv_, row);
    float* key = qkv + columns.key + kv_head * shape_.k_dim;
    float* value = qkv + columns.value + kv_head * shape_.v_dim;
    if (stored.rotate_keys) {
      kernels_.rotate(qkv + kv_head * group * shape_.k_dim, group, shape_.k_dim);
      kernels_.rotate(key, 1, shape_.k_dim);
    }
    if (!step.kv->Stores(cache_id_, part)) return;
    if (stored.rotate_values) kernels_.rotate(value, 1, shape_.v_dim);
    const kv::StepView::Place place = step.kv->PlaceOf(cache_id_, static_cast<int>(kv_head), part,
                                                       step.positions[static_cast<size_t>(row)]);
    kernels_.store_key(key, shape_.k_dim, stored.k_type, place.key_slot, place.key_tile,
                       place.key_scale);
    kernels_.store_value(value, shape_.v_dim, stored.v_type, place.value_slot, place.value_group,
                         place.value_scale);
  }

  void NormalizeHead(const WeightVector& weight, float* head) const {
    kernels_.rms_norm(head, weight.data(), shape_.k_dim, norms_.epsilon, head);
  }

  const cpu::KernelTable& kernels_;
  int cache_id_;
  AttentionShape shape_;
  cpu::RopeStyle style_;
  int64_t n_rot_;
  QkNorms norms_;
  ValueId qkv_;
  ValueId cos_sin_;
};

class AttentionNode final : public Node {
 public:
  AttentionNode(const cpu::KernelTable& kernels, int cache_id, const AttentionShape& shape,
                float scale, ValueId qkv, const Activations& out)
      : Node(fmt::format("layer.{}.attention", cache_id), {qkv}, out.ids()),
        kernels_(kernels),
        cache_id_(cache_id),
        shape_(shape),
        group_(shape.heads / shape.kv_heads),
        scale_(scale),
        qkv_(qkv),
        out_(out) {}

  // Tasks (piece of work, kv head) are dealt in turn, because later rows see more positions. Where
  // there are fewer of them than shares, each is cut into parts of its positions.
  void Run(const StepContext& step, const ThreadPool::Member& member) const override {
    if (step.kv == nullptr) return RunUncached(step, member);
    const std::span<const kv::StepView::Work> work = step.kv->work(cache_id_);
    const int64_t tasks = static_cast<int64_t>(work.size()) * shape_.kv_heads;
    const int64_t parts = PartCount(step, tasks, member.count);
    for (int64_t i = member.index; i < tasks * parts; i += member.count) {
      const int64_t task = i / parts;
      const Task place = {work[static_cast<size_t>(task / shape_.kv_heads)],
                          task % shape_.kv_heads};
      parts == 1 ? RunTask(step, place, step.Scratch(member))
                 : RunPart(step, place, {task, i % parts, parts}, step.Scratch(member));
    }
  }

  size_t ScratchBytes(const StepLimits& limits) const override {
    return RunBytes(limits) + kernels_.attention_scratch_bytes(kRowTile, static_cast<int>(group_),
                                                               static_cast<int>(shape_.k_dim),
                                                               static_cast<int>(shape_.v_dim));
  }

  // Room for the parts of four rows at any length.
  size_t SharedBytes(const StepLimits& limits) const override {
    if (limits.shares < 2 * shape_.kv_heads) return 0;
    return static_cast<size_t>(4 * shape_.heads * ChunksOf({0, limits.context})) * PartialBytes();
  }

  std::string Describe() const override {
    return fmt::format(
        "{} heads, {} kv heads x {}, {}{} {}", shape_.heads, shape_.kv_heads, shape_.k_dim,
        shape_.window == 0 ? std::string("all positions") : fmt::format("window {}", shape_.window),
        out_.int8 != kNoValue ? " + quantize int8" : "", kernels_.isa);
  }

 private:
  struct Task {
    const kv::StepView::Work& work;
    int64_t kv_head;
  };
  // One of the parts of a task, which is the task'th of the step.
  struct Part {
    int64_t task;
    int64_t index;
    int64_t count;
  };

  // The scratch begins with room for the runs of one lane.
  static size_t RunBytes(const StepLimits& limits) {
    const int64_t runs = kv::StepView::RunsMax(limits.context, limits.sequences);
    return RoundUp(static_cast<size_t>(runs) * sizeof(cpu::KvRun), 64);
  }

  // The bytes of a query vector's partial result in one chunk.
  size_t PartialBytes() const {
    return static_cast<size_t>(cpu::AttentionPartialFloats(static_cast<int>(shape_.v_dim))) *
           sizeof(float);
  }

  // Chunks that hold the positions.
  static int64_t ChunksOf(Range positions) {
    return (positions.end - 1) / cpu::kAttentionChunk - positions.begin / cpu::kAttentionChunk + 1;
  }

  // The positions that some row of the work sees.
  Range Seen(const StepContext& step, const kv::StepView::Work& work) const {
    Range seen = {step.positions[static_cast<size_t>(work.first_row)], 0};
    for (int64_t row = work.first_row; row < work.first_row + work.rows; ++row) {
      const int64_t position = step.positions[static_cast<size_t>(row)];
      seen.begin = std::min(seen.begin, position);
      seen.end = std::max(seen.end, position + 1);
    }
    seen.begin = shape_.window == 0 ? 0 : std::max<int64_t>(0, seen.begin - shape_.window + 1);
    return seen;
  }

  // The bytes of a task's partial results at most.
  size_t TaskPartialBytes(const StepContext& step) const {
    size_t bytes = 0;
    for (const kv::StepView::Work& work : step.kv->work(cache_id_)) {
      const int64_t chunks = ChunksOf(Seen(step, work));
      bytes = std::max(bytes, static_cast<size_t>(chunks * work.rows * group_) * PartialBytes());
    }
    return bytes;
  }

  // Parts that every task of the step is cut into.
  int64_t PartCount(const StepContext& step, int64_t tasks, int64_t shares) const {
    if (tasks == 0 || shares < 2 * tasks) return 1;
    int64_t chunks = 1;
    for (const kv::StepView::Work& work : step.kv->work(cache_id_)) {
      chunks = std::max(chunks, ChunksOf(Seen(step, work)));
    }
    const bool fits = static_cast<size_t>(tasks) * TaskPartialBytes(step) <= step.shared.size();
    return fits ? std::min(shares / tasks, chunks) : 1;
  }

  // The kernel's task with the scratch memory that it leaves.
  cpu::AttentionTask KernelTask(const StepContext& step, const Task& place,
                                std::span<std::byte> scratch) const {
    const kv::GroupShape& stored = step.kv->shape(cache_id_);
    const size_t run_bytes = RunBytes(step.limits);
    const std::span<cpu::KvRun> runs(reinterpret_cast<cpu::KvRun*>(scratch.data()),
                                     run_bytes / sizeof(cpu::KvRun));
    const kv::StepView::Work& work = place.work;
    cpu::AttentionTask task;
    task.queries = step.FloatRow(qkv_, work.first_row) + place.kv_head * group_ * shape_.k_dim;
    task.query_row_stride = step.RowFloats(qkv_);
    task.out = step.FloatRow(out_.floats, work.first_row) + place.kv_head * group_ * shape_.v_dim;
    task.out_row_stride = step.RowFloats(out_.floats);
    task.rows = work.rows;
    task.positions = step.positions.data() + work.first_row;
    task.heads_per_kv = static_cast<int>(group_);
    task.k_dim = static_cast<int>(shape_.k_dim);
    task.v_dim = static_cast<int>(shape_.v_dim);
    task.k_element = stored.k_type;
    task.v_element = stored.v_type;
    task.scale = scale_;
    task.window = shape_.window;
    task.runs = step.kv->Runs(cache_id_, static_cast<int>(place.kv_head), work, runs);
    task.hidden = step.kv->Hidden(cache_id_, work);
    task.scratch = scratch.subspan(run_bytes);
    return task;
  }

  void RunTask(const StepContext& step, const Task& place, std::span<std::byte> scratch) const {
    kernels_.attention(KernelTask(step, place, scratch));
    Finish(step, place.work.first_row, place.work.rows, place.kv_head);
  }

  // The last part of a task to be done merges them.
  void RunPart(const StepContext& step, const Task& place, const Part& part,
               std::span<std::byte> scratch) const {
    cpu::AttentionTask task = KernelTask(step, place, scratch);
    const Range seen = Seen(step, place.work);
    const int64_t chunks = ChunksOf(seen);
    task.slice.first = seen.begin / cpu::kAttentionChunk;
    task.slice.begin = task.slice.first + chunks * part.index / part.count;
    task.slice.end = task.slice.first + chunks * (part.index + 1) / part.count;
    task.slice.partials = reinterpret_cast<float*>(
        step.shared.data() + static_cast<size_t>(part.task) * TaskPartialBytes(step));
    kernels_.attention(task);
    std::atomic<int32_t>& arrived = step.arrivals[static_cast<size_t>(part.task)];
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < part.count) return;
    arrived.store(0, std::memory_order_relaxed);
    task.slice.begin = task.slice.first;
    task.slice.end = task.slice.first + chunks;
    kernels_.attention_merge(task);
    Finish(step, place.work.first_row, place.work.rows, place.kv_head);
  }

  // What follows on the results of a kv head: values turned back, quantized.
  void Finish(const StepContext& step, int64_t first_row, int64_t rows, int64_t kv_head) const {
    const int64_t cols = group_ * shape_.v_dim;
    const bool rotated = step.kv != nullptr && step.kv->shape(cache_id_).rotate_values;
    for (int64_t row = first_row; row < first_row + rows; ++row) {
      float* out = step.FloatRow(out_.floats, row) + kv_head * cols;
      if (rotated) kernels_.rotate(out, group_, shape_.v_dim);
      if (out_.int8 == kNoValue) continue;
      kernels_.quantize(out, cols, step.RecordAt(out_.int8, row, out_.cols, kv_head * cols));
    }
  }

  void RunUncached(const StepContext& step, const ThreadPool::Member& member) const {
    const int64_t rows = step.RowCount(qkv_);
    const int64_t tiles = (rows + kRowTile - 1) / kRowTile;
    for (int64_t task = member.index; task < tiles * shape_.kv_heads; task += member.count) {
      const int64_t begin = task / shape_.kv_heads * kRowTile;
      const int64_t end = std::min(rows, begin + kRowTile);
      AttendUncached(step, begin, end, task % shape_.kv_heads);
      Finish(step, begin, end - begin, task % shape_.kv_heads);
    }
  }

  void AttendUncached(const StepContext& step, int64_t begin, int64_t end, int64_t kv_head) const {
    const Columns columns(shape_);
    const int64_t stride = step.RowFloats(qkv_);
    const float* keys = step.Floats(qkv_) + columns.key + kv_head * shape_.k_dim;
    const float* values = step.Floats(qkv_) + columns.value + kv_head * shape_.v_dim;
    std::vector<double> weights(static_cast<size_t>(end));
    std::vector<double> sum(static_cast<size_t>(shape_.v_dim));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = shape_.window == 0 ? 0 : std::max<int64_t>(0, row - shape_.window + 1);
      for (int64_t head = kv_head * group_; head < (kv_head + 1) * group_; ++head) {
        const float* query = step.Floats(qkv_) + row * stride + head * shape_.k_dim;
        double highest = -HUGE_VAL;
        for (int64_t other = first; other <= row; ++other) {
          double dot = 0;
          for (int64_t d = 0; d < shape_.k_dim; ++d) {
            dot += static_cast<double>(query[d]) * static_cast<double>(keys[other * stride + d]);
          }
          weights[static_cast<size_t>(other)] = dot * static_cast<double>(scale_);
          highest = std::max(highest, weights[static_cast<size_t>(other)]);
        }
        double total = 0;
        std::fill(sum.begin(), sum.end(), 0.0);
        for (int64_t other = first; other <= row; ++other) {
          const double weight = std::exp(weights[static_cast<size_t>(other)] - highest);
          total += weight;
          for (int64_t d = 0; d < shape_.v_dim; ++d) {
            sum[static_cast<size_t>(d)] += weight * static_cast<double>(values[other * stride + d]);
          }
        }
        float* out = step.FloatRow(out_.floats, row) + head * shape_.v_dim;
        for (int64_t d = 0; d < shape_.v_dim; ++d)
          out[d] = static_cast<float>(sum[static_cast<size_t>(d)] / total);
      }
    }
  }

  const cpu::KernelTable& kernels_;
  int cache_id_;
  AttentionShape shape_;
  int64_t group_;  // query heads of a kv head
  float scale_;
  ValueId qkv_;
  Activations out_;
};

}  // namespace

std::unique_ptr<Node> MakeRopeAndStore(const cpu::KernelTable& kernels, int cache_id,
                                       const AttentionShape& shape, const RopeSpec& rope,
                                       QkNorms norms, ValueId qkv, ValueId cos_sin) {
  return std::make_unique<RopeAndStoreNode>(kernels, cache_id, shape, rope, std::move(norms), qkv,
                                            cos_sin);
}

std::unique_ptr<Node> MakeAttention(const cpu::KernelTable& kernels, int cache_id,
                                    const AttentionShape& shape, float scale, ValueId qkv,
                                    const Activations& out) {
  return std::make_unique<AttentionNode>(kernels, cache_id, shape, scale, qkv, out);
}

bool QuantizesAttention(const AttentionShape& shape) {
  return shape.heads / shape.kv_heads * shape.v_dim % 32 == 0;
}

}  // namespace kvant::graph
