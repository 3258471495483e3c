// The block arch::Mamba1 in plain loops over the whole sequence, from the formulas in its header.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/short_conv.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

class ReferenceMamba1 {
 public:
  ReferenceMamba1(const arch::Mamba1& spec, const std::string& prefix, ReferenceWeights& weights)
      : spec_(spec), prefix_(prefix), weights_(weights) {}

  std::vector<Vector> Run(const std::vector<Vector>& in) {
    std::vector<Vector> columns;
    std::vector<Vector> gates;
    for (const Vector& row : in) {
      const Vector all = weights_.Multiply(prefix_ + "ssm_in", row);
      columns.emplace_back(all.begin(), all.begin() + spec_.inner);
      gates.emplace_back(all.begin() + spec_.inner, all.end());
    }
    std::vector<Vector> x =
        ReferenceConv(prefix_ + "ssm_conv1d", static_cast<size_t>(spec_.taps), weights_, columns);
    Vector state(static_cast<size_t>(spec_.inner * spec_.state_dim));
    std::vector<Vector> out;
    for (size_t t = 0; t < in.size(); ++t) {
      for (double& value : x[t]) value /= 1.0 + std::exp(-value);
      Vector row = Step(state, x[t]);
      for (size_t i = 0; i < row.size(); ++i) {
        row[i] *= gates[t][i] / (1.0 + std::exp(-gates[t][i]));
      }
      out.push_back(weights_.Multiply(prefix_ + "ssm_out", row));
    }
    return out;
  }

 private:
  Vector Step(Vector& state, const Vector& x) {
    const Vector all = weights_.Multiply(prefix_ + "ssm_x", x);
    const auto b_begin = all.begin() + spec_.rank;
    const auto c_begin = b_begin + spec_.state_dim;
    const Vector b = Normed("ssm_b_norm", {b_begin, c_begin});
    const Vector c = Normed("ssm_c_norm", {c_begin, all.end()});
    Vector steps =
        weights_.Multiply(prefix_ + "ssm_dt", Normed("ssm_dt_norm", {all.begin(), b_begin}));
    const Vector& rates = weights_.Get(prefix_ + "ssm_a");
    Vector out;
    for (size_t i = 0; i < x.size(); ++i) {
      const double step = std::log1p(std::exp(steps[i]));
      double y = weights_.Get(prefix_ + "ssm_d")[i] * x[i];
      for (size_t n = 0; n < b.size(); ++n) {
        double& cell = state[i * b.size() + n];
        cell = std::exp(rates[i * b.size() + n] * step) * cell + step * b[n] * x[i];
        y += cell * c[n];
      }
      out.push_back(y);
    }
    return out;
  }

  Vector Normed(const std::string& tensor, Vector values) {
    if (spec_.norms == arch::StepNorms::kNone) return values;
    const bool weighted = spec_.norms == arch::StepNorms::kWithWeights;
    const Vector weight =
        weighted ? weights_.Get(prefix_ + tensor + ".weight") : Vector(values.size(), 1.0);
    ReferenceWeights::NormVector(arch::NormKind::kRms, static_cast<double>(spec_.norm_epsilon),
                                 weight.data(), values.size(), values.data());
    return values;
  }

  const arch::Mamba1& spec_;
  const std::string& prefix_;
  ReferenceWeights& weights_;
};

inline std::vector<Vector> Reference(const arch::Mamba1& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  return ReferenceMamba1(spec, prefix, weights).Run(in);
}

}  // namespace kvant::test
