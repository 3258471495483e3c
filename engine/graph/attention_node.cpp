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
  explicit Columns(const arch::LayerSpec& spec)
      : key(spec.heads * spec.k_dim), value(key + spec.kv_heads * spec.k_dim) {}
  int64_t key;    // first column of the keys in qkv
  int64_t value;  // first column of the values
};

class RopeAndStoreNode final : public Node {
 public:
  RopeAndStoreNode(const cpu::KernelTable& kernels, int layer, const arch::LayerSpec& spec,
                   const arch::RopeSpec& rope, QkNorms norms, ValueId qkv, ValueId cos_sin)
      : Node(fmt::format("layer.{}.rope_store", layer), {qkv, cos_sin}, {qkv}),
        kernels_(kernels),
        layer_(layer),
        spec_(spec),
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
    const int64_t tasks = static_cast<int64_t>(tiles.size()) * spec_.kv_heads;
    const Range range = OwnedRange(tasks, 1, member.index, member.count);
    for (int64_t task = range.begin; task < range.end; ++task) {
      const kv::RowTile& tile = tiles[static_cast<size_t>(task / spec_.kv_heads)];
      for (int64_t row = tile.first_row; row < tile.first_row + tile.rows; ++row) {
        RunRow(step, row, task % spec_.kv_heads);
        StoreRow(step, tile.part, row, task % spec_.kv_heads);
      }
    }
  }

  std::string Describe() const override {
    return fmt::format("{}rope {} {} of {} + cache write {}",
                       norms_.query.empty() ? "" : "rms_norm of heads + ",
                       style_ == cpu::RopeStyle::kHalves ? "halves" : "interleaved", n_rot_,
                       spec_.k_dim, kernels_.isa);
  }

 private:
  void RunUncached(const StepContext& step, const ThreadPool::Member& member) const {
    const Range range = OwnedRange(step.rows, 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      for (int64_t head = 0; head < spec_.kv_heads; ++head) RunRow(step, row, head);
    }
  }

  void RunRow(const StepContext& step, int64_t row, int64_t kv_head) const {
    const Columns columns(spec_);
    const int64_t group = spec_.heads / spec_.kv_heads;
    float* qkv = step.FloatRow(qkv_, row);
    const float* cos_sin = step.FloatRow(cos_sin_, row);
    float* queries = qkv + kv_head * group * spec_.k_dim;
    float* key = qkv + columns.key + kv_head * spec_.k_dim;
    if (!norms_.query.empty()) {
      for (int64_t head = 0; head < group; ++head)
        NormalizeHead(norms_.query, queries + head * spec_.k_dim);
      NormalizeHead(norms_.key, key);
    }
    kernels_.rope(queries, group, spec_.k_dim, n_rot_, style_, cos_sin);
    kernels_.rope(key, 1, spec_.k_dim, n_rot_, style_, cos_sin);
  }

  void StoreRow(const StepContext& step, int part, int64_t row, int64_t kv_head) const {
    const kv::GroupShape& shape = step.kv->shape(layer_);
    const Columns columns(spec_);
    const int64_t group = spec_.heads / spec_.kv_heads;
    float* qkv = step.FloatRow(qkv_, row);
    float* key = qkv + columns.key + kv_head * spec_.k_dim;
    float* value = qkv + columns.value + kv_head * spec_.v_dim;
    if (shape.rotate_keys) {
      kernels_.rotate(qkv + kv_head * group * spec_.k_dim, group, spec_.k_dim);
      kernels_.rotate(key, 1, spec_.k_dim);
    }
    if (!step.kv->Stores(layer_, part)) return;
    if (shape.rotate_values) kernels_.rotate(value, 1, spec_.v_dim);
    const kv::StepView::Place place = step.kv->PlaceOf(layer_, static_cast<int>(kv_head), part,
                                                       step.positions[static_cast<size_t>(row)]);
    kernels_.store_key(key, spec_.k_dim, shape.k_type, place.key_slot, place.key_tile,
                       place.key_scale);
    kernels_.store_value(value, spec_.v_dim, shape.v_type, place.value_slot, place.value_group,
                         place.value_scale);
  }

  void NormalizeHead(const WeightVector& weight, float* head) const {
    kernels_.rms_norm(head, weight.data(), spec_.k_dim, norms_.epsilon, head);
  }

  const cpu::KernelTable& kernels_;
  int layer_;
  arch::LayerSpec spec_;
  cpu::RopeStyle style_;
  int64_t n_rot_;
  QkNorms norms_;
  ValueId qkv_;
  ValueId cos_sin_;
};

class AttentionNode final : public Node {
 public:
  AttentionNode(const cpu::KernelTable& kernels, int layer, const arch::LayerSpec& spec,
                float scale, ValueId qkv, ValueId out)
      : Node(fmt::format("layer.{}.attention", layer), {qkv}, {out}),
        kernels_(kernels),
        layer_(layer),
        spec_(spec),
        scale_(scale),
        qkv_(qkv),
        out_(out) {}

  // Tasks (piece of work, kv head) are dealt in turn, because later rows see more positions.
  void Run(const StepContext& step, const ThreadPool::Member& member) const override {
    if (step.kv == nullptr) return RunUncached(step, member);
    const std::span<const kv::StepView::Work> work = step.kv->work(layer_);
    const int64_t tasks = static_cast<int64_t>(work.size()) * spec_.kv_heads;
    for (int64_t task = member.index; task < tasks; task += member.count) {
      RunCached(step, work[static_cast<size_t>(task / spec_.kv_heads)], task % spec_.kv_heads,
                step.Scratch(member));
    }
  }

  size_t ScratchBytes(const StepLimits& limits) const override {
    return RunBytes(limits) + kernels_.attention_scratch_bytes(
                                  kRowTile, static_cast<int>(spec_.heads / spec_.kv_heads),
                                  static_cast<int>(spec_.k_dim), static_cast<int>(spec_.v_dim));
  }

  std::string Describe() const override {
    return fmt::format(
        "{} heads, {} kv heads x {}, {} {}", spec_.heads, spec_.kv_heads, spec_.k_dim,
        spec_.window == 0 ? std::string("all positions") : fmt::format("window {}", spec_.window),
        kernels_.isa);
  }

 private:
  // The scratch begins with room for the runs of one lane.
  static size_t RunBytes(const StepLimits& limits) {
    const int64_t runs = kv::StepView::RunsMax(limits.context, limits.sequences);
    return RoundUp(static_cast<size_t>(runs) * sizeof(cpu::KvRun), 64);
  }

  void RunCached(const StepContext& step, const kv::StepView::Work& work, int64_t kv_head,
                 std::span<std::byte> scratch) const {
    const int64_t group = spec_.heads / spec_.kv_heads;
    const kv::GroupShape& shape = step.kv->shape(layer_);
    const size_t run_bytes = RunBytes(step.limits);
    const std::span<cpu::KvRun> runs(reinterpret_cast<cpu::KvRun*>(scratch.data()),
                                     run_bytes / sizeof(cpu::KvRun));
    cpu::AttentionTask task;
    task.queries = step.FloatRow(qkv_, work.first_row) + kv_head * group * spec_.k_dim;
    task.query_row_stride = step.RowFloats(qkv_);
    task.out = step.FloatRow(out_, work.first_row) + kv_head * group * spec_.v_dim;
    task.out_row_stride = step.RowFloats(out_);
    task.rows = work.rows;
    task.positions = step.positions.data() + work.first_row;
    task.heads_per_kv = static_cast<int>(group);
    task.k_dim = static_cast<int>(spec_.k_dim);
    task.v_dim = static_cast<int>(spec_.v_dim);
    task.k_element = shape.k_type;
    task.v_element = shape.v_type;
    task.scale = scale_;
    task.window = spec_.window;
    task.runs = step.kv->Runs(layer_, static_cast<int>(kv_head), work, runs);
    task.hidden = step.kv->Hidden(layer_, work);
    task.scratch = scratch.subspan(run_bytes);
    kernels_.attention(task);
    if (!shape.rotate_values) return;
    for (int64_t row = 0; row < work.rows; ++row) {
      kernels_.rotate(task.out + row * task.out_row_stride, group, spec_.v_dim);
    }
  }

  void RunUncached(const StepContext& step, const ThreadPool::Member& member) const {
    const int64_t tiles = (step.rows + kRowTile - 1) / kRowTile;
    for (int64_t task = member.index; task < tiles * spec_.kv_heads; task += member.count) {
      const int64_t begin = task / spec_.kv_heads * kRowTile;
      AttendUncached(step, begin, std::min(step.rows, begin + kRowTile), task % spec_.kv_heads);
    }
  }

  void AttendUncached(const StepContext& step, int64_t begin, int64_t end, int64_t kv_head) const {
    const Columns columns(spec_);
    const int64_t group = spec_.heads / spec_.kv_heads;
    const int64_t stride = step.RowFloats(qkv_);
    const float* keys = step.Floats(qkv_) + columns.key + kv_head * spec_.k_dim;
    const float* values = step.Floats(qkv_) + columns.value + kv_head * spec_.v_dim;
    std::vector<double> weights(static_cast<size_t>(end));
    std::vector<double> sum(static_cast<size_t>(spec_.v_dim));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = spec_.window == 0 ? 0 : std::max<int64_t>(0, row - spec_.window + 1);
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const float* query = step.Floats(qkv_) + row * stride + head * spec_.k_dim;
        double highest = -HUGE_VAL;
        for (int64_t other = first; other <= row; ++other) {
          double dot = 0;
          for (int64_t d = 0; d < spec_.k_dim; ++d) {
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
          for (int64_t d = 0; d < spec_.v_dim; ++d) {
            sum[static_cast<size_t>(d)] += weight * static_cast<double>(values[other * stride + d]);
          }
        }
        float* out = step.FloatRow(out_, row) + head * spec_.v_dim;
        for (int64_t d = 0; d < spec_.v_dim; ++d)
          out[d] = static_cast<float>(sum[static_cast<size_t>(d)] / total);
      }
    }
  }

  const cpu::KernelTable& kernels_;
  int layer_;
  arch::LayerSpec spec_;
  float scale_;
  ValueId qkv_;
  ValueId out_;
};

}  // namespace

std::unique_ptr<Node> MakeRopeAndStore(const cpu::KernelTable& kernels, int layer,
                                       const arch::LayerSpec& spec, const arch::RopeSpec& rope,
                                       QkNorms norms, ValueId qkv, ValueId cos_sin) {
  return std::make_unique<RopeAndStoreNode>(kernels, layer, spec, rope, std::move(norms), qkv,
                                            cos_sin);
}

std::unique_ptr<Node> MakeAttention(const cpu::KernelTable& kernels, int layer,
                                    const arch::LayerSpec& spec, float scale, ValueId qkv,
                                    ValueId out) {
  return std::make_unique<AttentionNode>(kernels, layer, spec, scale, qkv, out);
}

}  // namespace kvant::graph
