// The gated feed-forward: out = down . (activation(gate . x) * (up . x)), with optional biases, and
// with limits of gate and up where the activation has them.
//
// A row's gates g may be sparse: max(0, g - mean(g) - deviations * deviation of g) then takes the
// place of the gate, so that gates below a bound count as 0.
//
// The product of gates and ups may be normed before the down matrix multiplies it.
//
// Tensors: ffn_gate and ffn_up, or both in ffn_up, the rows of the gate first; ffn_down.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/metadata.h"
#include "engine/arch/norm.h"

namespace kvant::arch {

struct Stack;
class SublayerBuilder;

struct GatedFfn {
  int64_t width = 0;  // rows of the gate and of the up matrix
  cpu::GateActivation activation = cpu::Activation::kSilu;
  std::optional<float> deviations = {};  // above the mean, where few gates count
  std::optional<Norm> product_norm = {};

  Status AddNodes(SublayerBuilder& builder) const;
};

// The feed-forwards of all layers of a stack, by feed_forward_length.
Result<std::vector<GatedFfn>> ReadGatedFfns(const Metadata& metadata, const Stack& stack,
                                            cpu::Activation activation);

}  // namespace kvant::arch
