// The block arch::GatedFfn in plain loops, from the formula in its header.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/reference/weights.h"

namespace kvant::test {

inline double ReferenceActivation(cpu::Activation activation, double x) {
  if (activation == cpu::Activation::kSilu) return x / (1.0 + std::exp(-x));
  if (activation == cpu::Activation::kGeluErf) return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2)));
  if (activation == cpu::Activation::kRelu) return std::max(x, 0.0);
  if (activation == cpu::Activation::kReluSquared) return std::max(x, 0.0) * std::max(x, 0.0);
  if (activation == cpu::Activation::kTanh) return std::tanh(x);
  if (activation == cpu::Activation::kSwigluClamped) {
    return std::min(x, 7.0) / (1.0 + std::exp(-1.702 * std::min(x, 7.0)));
  }
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(u));
}

// The factor that the activation of the gate is multiplied with.
inline double ReferenceFactor(cpu::Activation activation, double up) {
  return activation == cpu::Activation::kSwigluClamped ? std::clamp(up, -7.0, 7.0) + 1.0 : up;
}

// The product of a gate and its up, within the limits of both.
inline double ReferenceProduct(const cpu::GateActivation& activation, double gate, double up) {
  const auto up_max = static_cast<double>(activation.up_max);
  return ReferenceActivation(activation.activation,
                             std::min(gate, static_cast<double>(activation.gate_max))) *
         ReferenceFactor(activation.activation, std::clamp(up, -up_max, up_max));
}

// Keeps of each gate what is more than `deviations` standard deviations above the mean.
inline void KeepLarge(double deviations, Vector& gate) {
  const auto count = static_cast<double>(gate.size());
  double mean = 0;
  for (const double value : gate) mean += value / count;
  double square = 0;
  for (const double value : gate) square += (value - mean) * (value - mean) / count;
  for (double& value : gate) {
    value = std::max(0.0, value - mean - deviations * std::sqrt(square));
  }
}

inline std::vector<Vector> Reference(const arch::GatedFfn& spec, const arch::ModelSpec&,
                                     const std::string& prefix, ReferenceWeights& weights,
                                     const std::vector<Vector>& in) {
  std::vector<Vector> out;
  for (const Vector& row : in) {
    Vector up = weights.Multiply(prefix + "ffn_up", row);
    Vector gate;
    if (weights.Has(prefix + "ffn_gate.weight")) {
      gate = weights.Multiply(prefix + "ffn_gate", row);
    } else {
      gate.assign(up.begin(), up.begin() + spec.width);
      up.erase(up.begin(), up.begin() + spec.width);
    }
    if (spec.deviations.has_value()) KeepLarge(static_cast<double>(*spec.deviations), gate);
    for (size_t i = 0; i < gate.size(); ++i) {
      gate[i] = ReferenceProduct(spec.activation, gate[i], up[i]);
    }
    if (spec.product_norm.has_value()) gate = weights.Norm(prefix, *spec.product_norm, gate);
    out.push_back(weights.Multiply(prefix + "ffn_down", gate));
  }
  return out;
}

}  // namespace kvant::test
