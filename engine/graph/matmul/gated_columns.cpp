#include "engine/graph/matmul/gated_columns.h"

#include <fmt/format.h>

namespace kvant::graph {

void GatedColumns::Run(const PassContext& pass, const Range& rows, const Range& cols) const {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    float* gate = pass.FloatRow(gate_up_, row) + cols.begin;
    RunRow(pass, row, cols, gate, gate + out_.cols);
  }
}

void GatedColumns::RunRow(const PassContext& pass, int64_t row, const Range& cols, float* gate,
                          const float* up) const {
  const int64_t count = cols.end - cols.begin;
  float* product = out_.floats != kNoValue ? pass.FloatRow(out_.floats, row) + cols.begin : gate;
  activation_.multiply(gate, up, count, product);
  if (out_.int8 != kNoValue) {
    pass.Quantize(kernels_, product, count, {out_.int8, row, out_.cols, cols.begin});
  }
}

std::string GatedColumns::Describe() const {
  return fmt::format("{} * up{} {} [{}]", activation_.name,
                     out_.int8 != kNoValue ? " + quantize int8" : "", kernels_.isa, out_.cols);
}

}  // namespace kvant::graph
