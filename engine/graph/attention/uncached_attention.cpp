#include "engine/graph/attention/uncached_attention.h"

#include <algorithm>
#include <cmath>

namespace kvant::graph {
namespace {

double Dot(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
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

void AttendHead(const UncachedAttention& task, int64_t head, int64_t row, const float* query,
                float* out) {
  const AttentionShape& shape = task.shape;
  double* scores = reinterpret_cast<double*>(task.scratch.data());  // by position
  double* sums = scores + task.kv_rows;                             // [v_dim]
  const int64_t first = shape.sees_all ? 0 : shape.FirstVisible(row);
  const int64_t end = shape.sees_all ? task.kv_rows : row + 1;
  const double slope =
      task.bias_slopes == nullptr ? 0.0 : static_cast<double>(task.bias_slopes[head]);
  const bool has_sink = task.sinks != nullptr;
  const double sink = has_sink ? static_cast<double>(task.sinks[head]) : 0.0;
  double highest = has_sink ? sink : -HUGE_VAL;
  for (int64_t other = first; other < end; ++other) {
    const double dot = Dot(query, task.keys + other * task.kv_stride, shape.query_dim());
    scores[other] = Capped(dot * static_cast<double>(task.scale), shape.score_cap) -
                    slope * static_cast<double>(row - other) +
                    FromDistance(task, head, other - row);
    highest = std::max(highest, scores[other]);
  }
  double total = has_sink ? std::exp(sink - highest) : 0.0;
  std::fill_n(sums, shape.v_dim, 0.0);
  for (int64_t other = first; other < end; ++other) {
    const double weight = std::exp(scores[other] - highest);
    const float* value = task.values + other * task.kv_stride;
    total += weight;
    for (int64_t d = 0; d < shape.v_dim; ++d) sums[d] += weight * static_cast<double>(value[d]);
  }
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

}  // namespace kvant::graph
