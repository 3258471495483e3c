#include "engine/graph/attention/uncached_attention.h"

#include <algorithm>
#include <cmath>

#include "engine/graph/attention/choice.h"
#include "engine/graph/cut.h"
#include "engine/kv/pass_view.h"

namespace kvant::graph {
namespace {

// Sums that do not wait for each other, as many as are under way in vectors of any CPU.
double Dot(const float* a, const float* b, int64_t count) {
  constexpr int64_t kSums = 8;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k) {
      sums[k] += static_cast<double>(a[i + k]) * static_cast<double>(b[i + k]);
    }
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  for (; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

double Capped(double score, float score_cap) {
  const double cap = static_cast<double>(score_cap);
  return cap > 0 ? cap * std::tanh(score / cap) : score;
}

double FromDistance(const UncachedAttention& task, int64_t head, int64_t distance) {
  const cpu::DistanceBias& bias = task.distances;
  return bias.values == nullptr ? 0.0 : static_cast<double>(*bias.At(head, distance));
}

// Calls visit(other) for the rows that a row sees, in ascending order.
template <class Visit>
void ForEachSeen(const UncachedAttention& task, int64_t row, const Visit& visit) {
  const auto [first, end] = task.shape.SeenInText(row, task.kv_rows);
  const int32_t* choice = task.choice == nullptr ? nullptr : task.choice + row * task.choice_stride;
  if (choice == nullptr || *choice == kSeesAll) {
    for (int64_t other = first; other < end; ++other) visit(other);
    return;
  }
  const int64_t block = task.shape.index->block;
  for (const int32_t unit : UnitsOf(choice)) {
    const int64_t unit_end = std::min(end, (unit + 1) * block);
    for (int64_t other = unit * block; other < unit_end; ++other) visit(other);
  }
}

void AttendHead(const UncachedAttention& task, int64_t head, int64_t row, const float* query,
                float* out) {
  const AttentionShape& shape = task.shape;
  double* scores = reinterpret_cast<double*>(task.scratch.data());  // by position
  double* sums = scores + task.kv_rows;                             // [v_dim]
  const double slope =
      task.bias_slopes == nullptr ? 0.0 : static_cast<double>(task.bias_slopes[head]);
  const bool has_sink = task.sinks != nullptr;
  const double sink = has_sink ? static_cast<double>(task.sinks[head]) : 0.0;
  double highest = has_sink ? sink : -HUGE_VAL;
  ForEachSeen(task, row, [&](int64_t other) {
    const double dot = Dot(query, task.keys + other * task.kv_stride, shape.query_dim());
    scores[other] = Capped(dot * static_cast<double>(task.scale), shape.score_cap) -
                    slope * static_cast<double>(std::abs(row - other)) +
                    FromDistance(task, head, other - row);
    highest = std::max(highest, scores[other]);
  });
  double total = has_sink ? std::exp(sink - highest) : 0.0;
  std::fill_n(sums, shape.v_dim, 0.0);
  ForEachSeen(task, row, [&](int64_t other) {
    const double weight = std::exp(scores[other] - highest);
    const float* value = task.values + other * task.kv_stride;
    total += weight;
    for (int64_t d = 0; d < shape.v_dim; ++d) sums[d] += weight * static_cast<double>(value[d]);
  });
  for (int64_t d = 0; d < shape.v_dim; ++d) out[d] = static_cast<float>(sums[d] / total);
}

}  // namespace

void Attend(const UncachedAttention& task) {
  const int64_t heads = task.shape.HeadsPerKv();
  for (int64_t row = task.row_begin; row < task.row_end; ++row) {
    const float* queries = task.queries + row * task.query_stride;
    float* out = task.out + row * task.out_stride;
    for (int64_t head = 0; head < heads; ++head) {
      AttendHead(task, head, row, queries + head * task.shape.query_dim(),
                 out + head * task.shape.v_dim);
    }
  }
}

size_t UncachedScratchBytes(const AttentionShape& shape, int64_t rows) {
  return static_cast<size_t>(rows + shape.v_dim) * sizeof(double);
}

namespace {

// The keys and values of a head, where there is no cache: of the source, or of the pass.
struct UncachedKeys {
  const float* keys;
  const float* values;
  int64_t stride;
  int64_t rows;
};
UncachedKeys KeysOf(const AttentionParts& parts, const PassContext& pass, int64_t head) {
  if (parts.in.kv != kNoValue) {
    const float* row = pass.Floats(parts.in.kv);
    return {row + parts.in.key_column + head * parts.shape.k_dim,
            row + parts.in.value_column + head * parts.shape.v_dim, pass.RowFloats(parts.in.kv),
            pass.RowCount(parts.in.kv)};
  }
  const float* row = pass.source->layers[static_cast<size_t>(parts.cache_id)].data();
  return {row + head * parts.shape.k_dim,
          row + parts.shape.kv_heads * parts.shape.k_dim + head * parts.shape.v_dim,
          parts.shape.kv_heads * (parts.shape.k_dim + parts.shape.v_dim), pass.source->positions};
}

bool HasChoice(const AttentionParts& parts, const PassContext& pass) {
  return parts.shape.index.has_value() && Chooses(*parts.shape.index, pass);
}

// The choice of the pass's first row for a kv head; null: there is none.
const int32_t* ChoiceOfRows(const AttentionParts& parts, const PassContext& pass, int64_t kv_head) {
  if (!HasChoice(parts, pass)) return nullptr;
  return ChoiceOf(*parts.shape.index, pass, parts.in.choice, 0, parts.ChoiceNumber(kv_head));
}

}  // namespace

void AttendUncached(const AttentionParts& parts, const PassContext& pass,
                    const ThreadPool::Member& member) {
  const int64_t rows = pass.RowCount(parts.in.queries);
  const int64_t tiles = (rows + kv::kRowTile - 1) / kv::kRowTile;
  for (int64_t task = PlaceInTurn(ShareOf(member)); task < tiles * parts.shape.kv_heads;
       task += member.count) {
    const int64_t begin = task / parts.shape.kv_heads * kv::kRowTile;
    const int64_t end = std::min(rows, begin + kv::kRowTile);
    const int64_t kv_head = task % parts.shape.kv_heads;
    const UncachedKeys kv = KeysOf(parts, pass, parts.CacheHead(kv_head));
    Attend({.shape = parts.shape,
            .scale = parts.scale,
            .bias_slopes = parts.OfHeads(parts.shape.bias_slopes, kv_head),
            .sinks = parts.OfHeads(parts.shape.sinks, kv_head),
            .distances = parts.DistancesOf(kv_head),
            .queries = pass.Floats(parts.in.queries) +
                       kv_head * parts.heads_per_kv * parts.shape.query_dim(),
            .keys = kv.keys,
            .values = kv.values,
            .out = pass.Floats(parts.out.floats) + kv_head * parts.heads_per_kv * parts.shape.v_dim,
            .query_stride = pass.RowFloats(parts.in.queries),
            .kv_stride = kv.stride,
            .kv_rows = kv.rows,
            .out_stride = pass.RowFloats(parts.out.floats),
            .row_begin = begin,
            .row_end = end,
            .choice = ChoiceOfRows(parts, pass, kv_head),
            .choice_stride = HasChoice(parts, pass) ? pass.RowFloats(parts.in.choice) : 0,
            .scratch = pass.Scratch(member)});
    parts.Finish(pass, begin, end - begin, kv_head);
  }
}

}  // namespace kvant::graph
