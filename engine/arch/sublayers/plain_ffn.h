// The feed-forward without gates: out = down . activation(up . x), with optional biases. The
// activation may be one with learned numbers.
//
// Tensors: ffn_up, ffn_down.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/metadata.h"
#include "engine/graph/rowwise/xielu.h"

namespace kvant::arch {

struct Stack;
class SublayerBuilder;

struct PlainFfn {
  int64_t width = 0;  // rows of the up matrix
  cpu::Activation activation = cpu::Activation::kGeluTanh;
  std::optional<graph::Xielu> xielu = {};  // in place of the activation

  Status AddNodes(SublayerBuilder& builder) const;
};

// The feed-forwards of all layers of a stack, by feed_forward_length.
Result<std::vector<PlainFfn>> ReadPlainFfns(const Metadata& metadata, const Stack& stack,
                                            cpu::Activation activation);

}  // namespace kvant::arch
