#include "engine/graph/attention/attention_parts.h"

#include "engine/kv/pass_view.h"

namespace kvant::graph {

cpu::DistanceBias AttentionParts::DistancesOf(int64_t kv_head) const {
  const DistanceTable& table = shape.distances;
  cpu::DistanceBias bias = {nullptr, table.least, table.count};
  if (!table.values.empty()) {
    bias.values = table.values.data() + kv_head * heads_per_kv * bias.stride();
  }
  return bias;
}

void AttentionParts::Finish(const PassContext& pass, int64_t first_row, int64_t rows,
                            int64_t kv_head) const {
  const int64_t cols = heads_per_kv * shape.v_dim;
  const bool rotated = pass.kv != nullptr && pass.kv->shape(cache_id).rotate_values;
  for (int64_t row = first_row; row < first_row + rows; ++row) {
    float* result = pass.FloatRow(out.floats, row) + kv_head * cols;
    if (rotated) kernels.rotate(result, heads_per_kv, shape.v_dim);
    if (out.int8 == kNoValue) continue;
    if (!is_latent()) {
      pass.Quantize(kernels, result, cols, {out.int8, row, out.cols, kv_head * cols});
      continue;
    }
    for (int64_t head = 0; head < heads_per_kv; ++head) {
      const int64_t record = row * shape.heads + kv_head * heads_per_kv + head;
      pass.Quantize(kernels, result + head * shape.v_dim, shape.v_dim,
                    {out.int8, record, shape.v_dim, 0});
    }
  }
}

}  // namespace kvant::graph
