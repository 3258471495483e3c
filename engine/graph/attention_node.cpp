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
#include "engine/kv/kv_cache.h"

namespace kvant::graph {
namespace {

// Query rows of one attention task; a multiple of it never splits a tile of keys between writers.
constexpr int64_t kRowTile = 32;

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
    const int64_t first = step.positions.front();
    const int64_t tile_first = first / kRowTile;
    const int64_t tiles = (first + step.rows - 1) / kRowTile - tile_first + 1;
    const Range range = OwnedRange(tiles * spec_.kv_heads, 1, member.index, member.count);
    for (int64_t task = range.begin; task < range.end; ++task) {
      const int64_t tile = tile_first + task / spec_.kv_heads;
      const int64_t row_begin = std::max<int64_t>(0, tile * kRowTile - first);
      const int64_t row_end = std::min(step.rows, (tile + 1) * kRowTile - first);
      for (int64_t row = row_begin; row < row_end; ++row) RunRow(step, row, task % spec_.kv_heads);
    }
  }

  std::string Describe() const override {
    return fmt::format("{}rope {} {} of {} + cache write {}",
                       norms_.query.empty() ? "" : "rms_norm of heads + ",
                       style_ == cpu::RopeStyle::kHalves ? "halves" : "interleaved", n_rot_,
                       spec_.k_dim, kernels_.isa);
  }

 private:
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
    if (step.kv == nullptr) return;
    const int64_t position = step.positions[static_cast<size_t>(row)];
    const int head = static_cast<int>(kv_head);
    const kv::GroupShape& shape = step.kv->shape(layer_);
    kernels_.store_key(key, spec_.k_dim, shape.k_type,
                       static_cast<int>(position % cpu::kKeyTileTokens),
                       step.kv->KeyTile(layer_, head, position));
    kernels_.store_value(qkv + columns.value + kv_head * spec_.v_dim, spec_.v_dim, shape.v_type,
                         step.kv->ValueRow(layer_, head, position));
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

  // Tasks (row tile, kv head) are dealt in turn, because later rows see more positions.
  void Run(const StepContext& step, const ThreadPool::Member& member) const override {
    const int64_t tiles = (step.rows + kRowTile - 1) / kRowTile;
    for (int64_t task = member.index; task < tiles * spec_.kv_heads; task += member.count) {
      const int64_t begin = task / spec_.kv_heads * kRowTile;
      const int64_t end = std::min(step.rows, begin + kRowTile);
      const int64_t kv_head = task % spec_.kv_heads;
      if (step.kv != nullptr) {
        RunCached(step, begin, end, kv_head, step.Scratch(member));
      } else {
        RunUncached(step, begin, end, kv_head);
      }
    }
  }

  size_t ScratchBytes(const StepLimits& limits) const override {
    return RunBytes(limits.context) + kernels_.attention_scratch_bytes(
                                          kRowTile, static_cast<int>(spec_.heads / spec_.kv_heads),
                                          static_cast<int>(spec_.k_dim),
                                          static_cast<int>(spec_.v_dim));
  }

  std::string Describe() const override {
    return fmt::format(
        "{} heads, {} kv heads x {}, {} {}", spec_.heads, spec_.kv_heads, spec_.k_dim,
        spec_.window == 0 ? std::string("all positions") : fmt::format("window {}", spec_.window),
        kernels_.isa);
  }

 private:
  // The scratch begins with room for the runs of one lane: never more than the blocks of the
  // context.
  static size_t RunBytes(int64_t context) {
    return RoundUp(static_cast<size_t>(context / kv::kBlockTokens + 1) * sizeof(cpu::KvRun), 64);
  }

  void RunCached(const StepContext& step, int64_t begin, int64_t end, int64_t kv_head,
                 std::span<std::byte> scratch) const {
    const int64_t group = spec_.heads / spec_.kv_heads;
    const kv::GroupShape& shape = step.kv->shape(layer_);
    const std::span<cpu::KvRun> runs(reinterpret_cast<cpu::KvRun*>(scratch.data()),
                                     static_cast<size_t>(step.kv->runs_max()));
    cpu::AttentionTask task;
    task.queries = step.FloatRow(qkv_, begin) + kv_head * group * spec_.k_dim;
    task.query_row_stride = step.RowFloats(qkv_);
    task.out = step.FloatRow(out_, begin) + kv_head * group * spec_.v_dim;
    task.out_row_stride = step.RowFloats(out_);
    task.rows = end - begin;
    task.positions = step.positions.data() + begin;
    task.heads_per_kv = static_cast<int>(group);
    task.k_dim = static_cast<int>(spec_.k_dim);
    task.v_dim = static_cast<int>(spec_.v_dim);
    task.k_element = shape.k_type;
    task.v_element = shape.v_type;
    task.scale = scale_;
    task.window = spec_.window;
    task.runs = step.kv->Runs(layer_, static_cast<int>(kv_head), runs);
    task.scratch = scratch.subspan(RunBytes(step.kv->context()));
    kernels_.attention(task);
  }

  void RunUncached(const StepContext& step, int64_t begin, int64_t end, int64_t kv_head) const {
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
