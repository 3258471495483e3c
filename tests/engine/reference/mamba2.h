// The block arch::Mamba2 in plain loops over the whole sequence, from the formulas in its header.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/short_conv.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

class ReferenceMamba2 {
 public:
  ReferenceMamba2(const arch::Mamba2& spec, const std::string& prefix, ReferenceWeights& weights)
      : spec_(spec), prefix_(prefix), weights_(weights) {}

  std::vector<Vector> Run(const std::vector<Vector>& in) {
    std::vector<Vector> columns;
    std::vector<Vector> gates;
    std::vector<Vector> steps;
    for (const Vector& row : in) {
      const Vector all = weights_.Multiply(prefix_ + "ssm_in", row);
      const auto conv = all.begin() + spec_.inner();
      gates.emplace_back(all.begin(), conv);
      columns.emplace_back(conv, conv + spec_.conv_columns());
      steps.emplace_back(conv + spec_.conv_columns(), all.end());
    }
    std::vector<Vector> xbc =
        ReferenceConv(prefix_ + "ssm_conv1d", static_cast<size_t>(spec_.taps), weights_, columns);
    Vector state(static_cast<size_t>(spec_.inner() * spec_.state_dim));
    std::vector<Vector> out;
    for (size_t t = 0; t < in.size(); ++t) {
      for (double& value : xbc[t]) value /= 1.0 + std::exp(-value);
      Vector row = Step(state, xbc[t], steps[t]);
      for (size_t i = 0; i < row.size(); ++i)
        row[i] *= gates[t][i] / (1.0 + std::exp(-gates[t][i]));
      if (weights_.Has(prefix_ + "ssm_norm.weight")) {
        const auto count = static_cast<size_t>(spec_.inner() / spec_.groups);
        for (size_t i = 0; i < row.size(); i += count) {
          ReferenceWeights::NormVector(
              arch::NormKind::kRms, static_cast<double>(spec_.norm_epsilon),
              weights_.Get(prefix_ + "ssm_norm.weight").data() + i, count, row.data() + i);
        }
      }
      out.push_back(weights_.Multiply(prefix_ + "ssm_out", row));
    }
    return out;
  }

 private:
  Vector Step(Vector& state, const Vector& xbc, const Vector& steps) {
    Vector out;
    for (int64_t head = 0; head < spec_.heads; ++head) {
      const auto h = static_cast<size_t>(head);
      const int64_t group = head / (spec_.heads / spec_.groups);
      const int64_t b = spec_.inner() + group * spec_.state_dim;
      const int64_t c = b + spec_.groups * spec_.state_dim;
      const double step = std::log1p(std::exp(steps[h] + weights_.Get(prefix_ + "ssm_dt.bias")[h]));
      const double decay = std::exp(weights_.Get(prefix_ + "ssm_a")[h] * step);
      for (int64_t p = 0; p < spec_.head_dim; ++p) {
        const int64_t column = head * spec_.head_dim + p;
        const double x = xbc[static_cast<size_t>(column)];
        double y = weights_.Get(prefix_ + "ssm_d")[h] * x;
        for (int64_t n = 0; n < spec_.state_dim; ++n) {
          double& cell = state[static_cast<size_t>(column * spec_.state_dim + n)];
          cell = decay * cell + step * x * xbc[static_cast<size_t>(b + n)];
          y += cell * xbc[static_cast<size_t>(c + n)];
        }
        out.push_back(y);
      }
    }
    return out;
  }

  const arch::Mamba2& spec_;
  const std::string& prefix_;
  ReferenceWeights& weights_;
};

inline std::vector<Vector> Reference(const arch::Mamba2& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  return ReferenceMamba2(spec, prefix, weights).Run(in);
}

}  // namespace kvant::test
