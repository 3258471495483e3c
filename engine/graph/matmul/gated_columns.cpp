#include "engine/graph/matmul/gated_columns.h"

#include <fmt/format.h>

namespace kvant::graph {
namespace {

// NaN stays NaN.
void Limit(const cpu::GateActivation& limits, int64_t count, float* gate, float* up) {
  for (int64_t i = 0; i < count; ++i)
    gate[i] = gate[i] > limits.gate_max ? limits.gate_max : gate[i];
  for (int64_t i = 0; i < count; ++i) {
    const float below = up[i] > limits.up_max ? limits.up_max : up[i];
    up[i] = below < -limits.up_max ? -limits.up_max : below;
  }
}

}  // namespace

void GatedColumns::Run(const PassContext& pass, const Range& rows, const Range& cols) const {
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    float* gate = pass.FloatRow(gate_up_, row) + cols.begin;
    RunRow(pass, row, cols, gate, gate + out_.cols);
  }
}

void GatedColumns::RunRow(const PassContext& pass, int64_t row, const Range& cols, float* gate,
                          float* up) const {
  const int64_t count = cols.end - cols.begin;
  if (limits_.has_limits()) Limit(limits_, count, gate, up);
  float* product = out_.floats != kNoValue ? pass.FloatRow(out_.floats, row) + cols.begin : gate;
  activation_.multiply(gate, up, count, product);
  if (out_.int8 != kNoValue) {
    pass.Quantize(kernels_, product, count, {out_.int8, row, out_.cols, cols.begin});
  }
}

std::string GatedColumns::Describe() const {
  return fmt::format("{}{} * up{} {} [{}]", limits_.has_limits() ? "limited " : "",
                     activation_.name, out_.int8 != kNoValue ? " + quantize int8" : "",
                     kernels_.isa, out_.cols);
}

}  // namespace kvant::graph
