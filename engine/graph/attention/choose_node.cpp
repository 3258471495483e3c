// Scores the positions that a row may see, and chooses among them. Rows are computed one by one;
// where they are few, the positions of each are cut into stretches, and the thread that finishes
// the last stretch of a row chooses.
//
// Invariant: a row's scores and its choice depend on neither the cut nor other rows.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "base/aligned_buffer.h"
#include "cpu/kernels/index_scores.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_kernels.h"
#include "engine/graph/attention/attention_shares.h"
#include "engine/graph/attention/choice.h"
#include "engine/graph/attention/index_nodes.h"
#include "engine/graph/cut.h"
#include "engine/kv/pass_view.h"

namespace kvant::graph {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// A thread's scratch memory, by arrays.
struct ChooseScratch {
  std::span<cpu::KvRun> runs;
  float* weights;             // [heads]
  float* scores;              // of the positions of a stretch, where units are blocks
  float* units;               // [choices][units of the context]
  std::span<uint32_t> order;  // [units of the context]
  std::span<std::byte> kernel;
};

class ChooseNode final : public Node {
 public:
  ChooseNode(const cpu::KernelTable& kernels, int cache_id, const IndexShape& shape,
             const IndexInput& in, float weight_scale, ValueId choice)
      : Node(fmt::format("layer.{}.choose", cache_id), Reads(in), {choice}),
        kernels_(kernels),
        cache_id_(cache_id),
        shape_(shape),
        in_(in),
        weight_scale_(weight_scale),
        choice_(choice) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    if (!Chooses(shape_, pass)) return;
    const int64_t rows = pass.RowCount(choice_);
    const int64_t slices = SliceCount(pass, rows, member.count);
    const ChooseScratch scratch = Place(pass.limits, pass.Scratch(member).data());
    for (int64_t i = PlaceInTurn(ShareOf(member)); i < rows * slices; i += member.count) {
      const int64_t row = i / slices;
      if (PositionOf(pass, row) < shape_.all_until()) {
        const bool writes = i % slices == 0;
        for (int64_t c = 0; writes && c < shape_.choices(); ++c) *Choice(pass, row, c) = kSeesAll;
      } else if (slices == 1) {
        Score(pass, row, {0, PositionOf(pass, row) + 1}, scratch, scratch.units);
        Choose(pass, row, scratch.units, scratch);
      } else {
        RunSlice(pass, row, {i % slices, slices}, scratch);
      }
    }
  }

  size_t ScratchBytes(const PassLimits& limits) const override {
    if (limits.positions() <= shape_.all_until()) return 0;
    size_t size;
    PlaceArrays(limits, nullptr, size);
    return size;
  }

  size_t SharedBytes(const PassLimits& limits) const override {
    if (limits.positions() <= shape_.all_until() || limits.shares < 2) return 0;
    return static_cast<size_t>(kSlicedRows * UnitFloats(limits)) * sizeof(float);
  }

  void AddWork(const PassShape& pass, Work& work) const override {
    for (const PassShape::Part& part : pass.parts) {
      if (part.end <= shape_.all_until()) continue;
      const int64_t rows = std::min(part.rows, part.end - shape_.all_until());
      const auto seen = static_cast<double>(rows) *
                        (static_cast<double>(part.end) - static_cast<double>(rows - 1) / 2);
      work.float_macs += seen * static_cast<double>(shape_.heads * shape_.dim);
      if (!pass.cache.has_value() || part.shares_cache) continue;
      const size_t bytes = cpu::KvRowBytes(pass.cache->k_type, shape_.dim) +
                           cpu::KvScaleBytes(pass.cache->k_type, shape_.dim);
      work.cache_bytes += static_cast<double>(part.end) * static_cast<double>(bytes);
    }
  }
  int64_t UnitsOf(const PassShape& pass) const override {
    int64_t units = 0;
    for (const PassShape::Part& part : pass.parts) {
      const bool cut = pass.rows[rows()] <= kSlicedRows;
      units += part.rows * (cut ? (part.end + Stretch() - 1) / Stretch() : 1);
    }
    return units;
  }

  std::string Describe() const override {
    return fmt::format("{} heads x {}, the best {} {} {}", shape_.heads, shape_.dim, shape_.top_k,
                       shape_.block == 1 ? "positions" : fmt::format("blocks of {}", shape_.block),
                       kernels_.isa);
  }

 private:
  // Slice number `index` of `count` of a row.
  struct Slice {
    int64_t index;
    int64_t count;
  };

  static std::vector<ValueId> Reads(const IndexInput& in) {
    std::vector<ValueId> reads = {in.queries.value, in.key.value};
    if (in.weights.value != kNoValue) reads.push_back(in.weights.value);
    return reads;
  }

  // Positions that are scored together: whole units and key tiles.
  int64_t Stretch() const {
    const int64_t step = std::lcm(shape_.block, int64_t{cpu::kKeyTileTokens});
    return (cpu::kAttentionSpan + step - 1) / step * step;
  }
  int64_t StretchesOf(int64_t positions) const { return (positions + Stretch() - 1) / Stretch(); }

  int64_t UnitStride(const PassLimits& limits) const {
    return (shape_.units(limits.positions()) + 15) / 16 * 16;
  }
  int64_t UnitFloats(const PassLimits& limits) const {
    return shape_.choices() * UnitStride(limits);
  }

  // Lays the arrays out from `base` on; `size` becomes what they take.
  ChooseScratch PlaceArrays(const PassLimits& limits, std::byte* base, size_t& size) const {
    size = 0;
    const auto place = [&]<class T>(int64_t count, T* /*type*/) {
      T* array = base == nullptr ? nullptr : reinterpret_cast<T*>(base + size);
      size += RoundUp(static_cast<size_t>(count) * sizeof(T), 64);
      return array;
    };
    ChooseScratch scratch;
    const int64_t runs =
        limits.kv_cache ? kv::PassView::RunsMax(limits.positions(), limits.sequences) : 0;
    scratch.runs = {place(runs, static_cast<cpu::KvRun*>(nullptr)), static_cast<size_t>(runs)};
    scratch.weights = place(shape_.heads, static_cast<float*>(nullptr));
    scratch.scores = place(Stretch(), static_cast<float*>(nullptr));
    scratch.units = place(UnitFloats(limits), static_cast<float*>(nullptr));
    const int64_t units = UnitStride(limits);
    scratch.order = {place(units, static_cast<uint32_t*>(nullptr)), static_cast<size_t>(units)};
    const size_t kernel =
        cpu::IndexScratchBytes(static_cast<int>(shape_.heads), static_cast<int>(shape_.dim));
    scratch.kernel = {place(static_cast<int64_t>(kernel), static_cast<std::byte*>(nullptr)),
                      kernel};
    return scratch;
  }
  ChooseScratch Place(const PassLimits& limits, std::byte* base) const {
    size_t size;
    return PlaceArrays(limits, base, size);
  }

  static int64_t PositionOf(const PassContext& pass, int64_t row) {
    return pass.positions[static_cast<size_t>(row)];
  }
  int32_t* Choice(const PassContext& pass, int64_t row, int64_t choice) const {
    return ChoiceOf(shape_, pass, choice_, row, choice);
  }

  // The number of slices of every row.
  int64_t SliceCount(const PassContext& pass, int64_t rows, int64_t shares) const {
    if (pass.kv == nullptr || rows > kSlicedRows) return 1;
    const int64_t most = *std::ranges::max_element(pass.positions) + 1;
    return SlicesOf(rows, StretchesOf(most), shares);
  }

  // Computes a slice; the thread that finishes the last slice of a row chooses.
  void RunSlice(const PassContext& pass, int64_t row, const Slice& slice,
                const ChooseScratch& scratch) const {
    float* units = reinterpret_cast<float*>(pass.shared.data()) + row * UnitFloats(pass.limits);
    const int64_t end = PositionOf(pass, row) + 1;
    const int64_t stretches = StretchesOf(end);
    const Range positions = {
        stretches * slice.index / slice.count * Stretch(),
        std::min(end, stretches * (slice.index + 1) / slice.count * Stretch())};
    Score(pass, row, positions, scratch, units);
    std::atomic<int32_t>& arrived = pass.arrivals[static_cast<size_t>(row)];
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < slice.count) return;
    arrived.store(0, std::memory_order_relaxed);
    Choose(pass, row, units, scratch);
  }

  // Writes the scores of the units of some positions, which begin at a stretch.
  void Score(const PassContext& pass, int64_t row, const Range& positions,
             const ChooseScratch& scratch, float* units) const {
    for (int64_t h = 0; h < shape_.heads && !shape_.per_head; ++h) {
      const bool all_one = in_.weights.value == kNoValue;
      scratch.weights[h] =
          all_one ? weight_scale_
                  : pass.FloatRow(in_.weights.value, row)[in_.weights.first + h] * weight_scale_;
    }
    for (int64_t begin = positions.begin; begin < positions.end; begin += Stretch()) {
      const Range stretch = {begin, std::min(positions.end, begin + Stretch())};
      for (int64_t choice = 0; choice < shape_.choices(); ++choice) {
        float* of_choice = units + choice * UnitStride(pass.limits);
        float* scores = shape_.block == 1 ? of_choice + begin : scratch.scores;
        pass.kv == nullptr ? ScoreUncached(pass, row, choice, stretch, scratch, scores)
                           : ScoreCached(pass, row, choice, stretch, scratch, scores);
        for (int64_t p = begin; shape_.block > 1 && p < stretch.end; p += shape_.block) {
          const float* of_unit = scores + (p - begin);
          of_choice[p / shape_.block] =
              ScoreOf({of_unit, scores + (std::min(stretch.end, p + shape_.block) - begin)});
        }
      }
    }
  }

  // The score of a unit by those of its positions; a pooled one that lacks positions has none yet.
  float ScoreOf(std::span<const float> positions) const {
    if (!shape_.pooled) return *std::ranges::max_element(positions);
    return std::ssize(positions) == shape_.block ? positions.back() : kNever;
  }

  const float* QueriesOf(const PassContext& pass, int64_t row, int64_t choice) const {
    return pass.FloatRow(in_.queries.value, row) + in_.queries.first + choice * shape_.dim;
  }

  void ScoreCached(const PassContext& pass, int64_t row, int64_t choice, const Range& positions,
                   const ChooseScratch& scratch, float* scores) const {
    const kv::PassView::Work& work = pass.kv->WorkOf(cache_id_, row);
    cpu::IndexTask task;
    task.queries = QueriesOf(pass, row, choice);
    task.weights = shape_.per_head ? nullptr : scratch.weights;
    task.heads = shape_.per_head ? 1 : static_cast<int>(shape_.heads);
    task.dim = static_cast<int>(shape_.dim);
    task.type = pass.kv->shape(cache_id_).k_type;
    task.runs = pass.kv->Runs(cache_id_, 0, work, scratch.runs);
    task.row = row - work.first_row;
    task.begin = positions.begin;
    task.end = positions.end;
    task.scores = scores;
    task.scratch = scratch.kernel;
    std::fill(scores, scores + (positions.end - positions.begin), kNever);
    cpu::KernelsFor(kernels_, task.type, task.type).index_scores(task);
    for (const cpu::HiddenPositions& hidden : pass.kv->Hidden(cache_id_, work)) {
      if ((hidden.rows >> (task.row % cpu::kMaskedRowsMax) & 1) == 0) continue;
      for (int64_t p = std::max(hidden.begin, task.begin); p < std::min(hidden.end, task.end);
           ++p) {
        scores[p - task.begin] = kNever;
      }
    }
  }

  // Plain sums in double precision.
  void ScoreUncached(const PassContext& pass, int64_t row, int64_t choice, const Range& positions,
                     const ChooseScratch& scratch, float* scores) const {
    const float* queries = QueriesOf(pass, row, choice);
    const auto product = [&](int64_t head, const float* key) {
      double sum = 0;
      for (int64_t d = 0; d < shape_.dim; ++d) {
        sum += static_cast<double>(queries[head * shape_.dim + d]) * static_cast<double>(key[d]);
      }
      return sum;
    };
    for (int64_t p = positions.begin; p < positions.end; ++p) {
      if (shape_.pooled && (p + 1) % shape_.block != 0) continue;  // no unit ends there
      const float* key = pass.FloatRow(in_.key.value, p) + in_.key.first;
      double score = shape_.per_head ? product(0, key) : 0;
      for (int64_t h = 0; h < shape_.heads && !shape_.per_head; ++h) {
        score += static_cast<double>(scratch.weights[h]) * std::max(0.0, product(h, key));
      }
      scores[p - positions.begin] = static_cast<float>(score);
    }
  }

  void Choose(const PassContext& pass, int64_t row, float* units,
              const ChooseScratch& scratch) const {
    const int64_t count = shape_.units(PositionOf(pass, row) + 1);
    for (int64_t choice = 0; choice < shape_.choices(); ++choice) {
      float* scores = units + choice * UnitStride(pass.limits);
      const bool lacks = shape_.pooled && (PositionOf(pass, row) + 1) % shape_.block != 0;
      const int64_t always = lacks ? 1 : std::min(shape_.local, count);
      for (int64_t i = 1; i <= always; ++i) {
        scores[count - i] = std::numeric_limits<float>::infinity();
      }
      ChooseBest({scores, static_cast<size_t>(count)}, lacks ? shape_.top_k + 1 : shape_.top_k,
                 scratch.order, Choice(pass, row, choice));
    }
  }

  const cpu::KernelTable& kernels_;
  int cache_id_;
  IndexShape shape_;
  IndexInput in_;
  float weight_scale_;
  ValueId choice_;
};

}  // namespace

std::unique_ptr<Node> MakeChoose(const cpu::KernelTable& kernels, int cache_id,
                                 const IndexShape& shape, const IndexInput& in, float weight_scale,
                                 ValueId choice) {
  return std::make_unique<ChooseNode>(kernels, cache_id, shape, in, weight_scale, choice);
}

}  // namespace kvant::graph
