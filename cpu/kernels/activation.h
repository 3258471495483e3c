// Activations of feed-forward blocks: the functions that stand between two matrix products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace kvant::cpu {

// Formulas are in cpu/generic/activations.inl. exp is within 2 ulp of the exact value.
enum class Activation : uint8_t {
  kSilu,  // x / (1 + exp(-x))
  // The tanh form of GELU (Hendrycks and Gimpel, arXiv 1606.08415): 0.5 x (1 + tanh(u)) =
  // x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
  kGeluTanh,
  kGeluErf,      // GELU itself, 0.5 x (1 + erf(x / sqrt(2))), with an error below 2e-7 |x|
  kRelu,         // max(x, 0)
  kReluSquared,  // max(x, 0)^2
  // gpt-oss: g / (1 + exp(-1.702 g)), g = min(x, 7), which multiplies max(-7, min(up, 7)) + 1.
  kSwigluClamped,
  kTanh,     // within 2^-21
  kSigmoid,  // 1 / (1 + exp(-x))
  // Decays of RWKV 6 and 7: exp(-exp(x)), and exp(-exp(-1/2) / (1 + exp(-x))).
  kDecay,
  kBoundedDecay,
  kSoftplus,       // log(1 + exp(x)), within 2^-21
  kSoftplusOfTwo,  // log2(1 + 2^x), likewise
};

// The activation of a gated unit, and limits of what goes into it: activation(min(gate, gate_max))
// * max(-up_max, min(up, up_max)).
struct GateActivation {
  static constexpr float kNoLimit = std::numeric_limits<float>::infinity();

  GateActivation(Activation kind) : activation(kind) {}  // NOLINT: an activation without limits
  bool has_limits() const { return gate_max < kNoLimit || up_max < kNoLimit; }

  Activation activation;
  float gate_max = kNoLimit;
  float up_max = kNoLimit;
};

struct ActivationKernel {
  Activation activation;
  const char* name;  // "silu"
  // out = f(x); out may be x.
  void (*apply)(const float* x, int64_t cols, float* out);
  // out = f(gate) * up, or the activation's own form of up; out may be gate or up.
  void (*multiply)(const float* gate, const float* up, int64_t cols, float* out);
};

// Whether each activation has the place of its number.
constexpr bool InOrder(std::span<const ActivationKernel> kernels) {
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (static_cast<size_t>(kernels[i].activation) != i) return false;
  }
  return kernels.size() == static_cast<size_t>(Activation::kSoftplusOfTwo) + 1;
}

}  // namespace kvant::cpu
