#include "cpu/scalar/index_scores.h"

#include <algorithm>
#include <cmath>

namespace kvant::cpu::scalar {
namespace {

template <class Format>
float Product(const IndexTask& task, const KvRun& run, int64_t token, int head) {
  const auto t = static_cast<size_t>(token);
  const std::byte* tile = run.keys + KeyTileOffset(Format::kType, task.dim, t);
  const float* query = task.queries + int64_t{head} * task.dim;
  float sum = 0;
  for (int d = 0; d < task.dim; ++d) {
    const auto number = Format::Key(tile, t % kKeyTileTokens, static_cast<size_t>(d));
    sum = std::fma(query[d], static_cast<float>(Format::Decode(number)), sum);
  }
  if constexpr (Format::kHasScales) {
    const auto* scales = static_cast<const std::byte*>(run.key_scales);
    sum *= KvScaleOf<Format>(scales + t * KvScaleBytes(Format::kType, task.dim), 0);
  }
  return sum;
}

float Score(const IndexTask& task, const KvRun& run, int64_t token) {
  return VisitKvFormat(task.type, [&]<class Format>(Format) {
    if (task.weights == nullptr) return Product<Format>(task, run, token, 0);
    float sum = 0;
    for (int head = 0; head < task.heads; ++head) {
      const float product = Product<Format>(task, run, token, head);
      sum = std::fma(task.weights[head], 0.0f > product ? 0.0f : product, sum);
    }
    return sum;
  });
}

}  // namespace

void IndexScores(const IndexTask& task) {
  for (const KvRun& run : task.runs) {
    if ((run.rows >> (task.row % kMaskedRowsMax) & 1) == 0) continue;
    const int64_t end = std::min(task.end, run.first_position + run.count);
    for (int64_t p = std::max(task.begin, run.first_position); p < end; ++p) {
      task.scores[p - task.begin] = Score(task, run, p - run.first_position);
    }
  }
}

}  // namespace kvant::cpu::scalar
