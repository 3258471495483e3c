#include "engine/arch/sublayers/conv_weights.h"

#include "base/result.h"
#include "engine/graph/activations.h"
#include "engine/limits.h"

namespace kvant::arch {

Result<int64_t> ReadConvTaps(const Metadata& metadata, std::string_view key) {
  KVANT_ASSIGN(const int64_t taps, metadata.Count(key, kConvTapsMax));
  if (taps > 1) return taps;
  return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected 2 to {}, found 1",
                   metadata.file().path(), metadata.Key(key), kConvTapsMax);
}

Result<graph::CausalConv> ReadConvWeights(const graph::PlanBuilder& plan, const std::string& name,
                                          int64_t taps, int64_t cols) {
  graph::CausalConv conv;
  conv.taps = taps;
  conv.cols = cols;
  KVANT_ASSIGN(const graph::WeightVector columns, plan.VectorsApart(name + ".weight", taps, cols));
  KVANT_ASSIGN(conv.bias, plan.OptionalVector(name + ".bias", cols));
  conv.weights.resize(columns.size());
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      conv.weights[static_cast<size_t>(tap * cols + c)] =
          columns[static_cast<size_t>(c * taps + tap)];
    }
  }
  return conv;
}

}  // namespace kvant::arch
