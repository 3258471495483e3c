// The block arch::FfnAndExperts in plain loops, from the formula in its header.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/experts.h"
#include "tests/engine/reference/gated_ffn.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

// The logits of a router that reads the stream.
inline Vector ReferenceScaledRouter(const arch::Experts& spec, const std::string& prefix,
                                    ReferenceWeights& weights, const Vector& stream) {
  Vector in = stream;
  const Vector& scale = weights.Get(prefix + "ffn_gate_inp.scale");
  ReferenceWeights::NormVector(arch::NormKind::kRms, static_cast<double>(spec.router_epsilon),
                               scale.data(), scale.size(), in.data());
  for (double& value : in) value /= std::sqrt(static_cast<double>(in.size()));
  const Vector& matrix = weights.Get(prefix + "ffn_gate_inp.weight");
  Vector logits(matrix.size() / in.size());
  for (size_t r = 0; r < logits.size(); ++r) {
    for (size_t c = 0; c < in.size(); ++c) logits[r] += matrix[r * in.size() + c] * in[c];
  }
  return logits;
}

inline std::vector<Vector> Reference(const arch::FfnAndExperts& spec, const arch::ModelSpec& model,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  ReferenceExperts experts(spec.experts, prefix, weights);
  std::vector<Vector> out;
  for (const Vector& row : in) {
    const Vector normed = weights.Norm(prefix, spec.before_ffn, row);
    Vector sum = Reference(spec.ffn, model, prefix, weights, {normed}).front();
    sum = weights.Norm(prefix, spec.after_ffn, sum);
    const Vector read = weights.Norm(prefix, spec.before_experts, row);
    const Vector logits = ReferenceScaledRouter(spec.experts, prefix, weights, row);
    const Vector part = weights.Norm(prefix, spec.after_experts, experts.Sum(logits, read));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    out.push_back(sum);
  }
  return out;
}

}  // namespace kvant::test
