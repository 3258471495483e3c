// The activation of feed-forwards in files that name one. Thread-safety: that of Metadata.
#pragma once

#include <string_view>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/metadata.h"

namespace kvant::arch {

// Reads hidden_act, or another key with such a word: relu, relu2, gelu, gelu_new, silu, swish,
// tanh.
// `otherwise` where the key is absent; kNotSupported, with the key, for another word.
Result<cpu::Activation> ReadHiddenActivation(const Metadata& metadata, cpu::Activation otherwise,
                                             const char* key = "hidden_act");

}  // namespace kvant::arch
