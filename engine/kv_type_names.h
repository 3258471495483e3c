// The names of the numbers that a KV cache can be made of.
#pragma once

#include <string_view>

#include "base/result.h"
#include "cpu/kernels.h"

namespace kvant {

// "f32", "f16" or "q8".
std::string_view KvTypeName(cpu::KvElement type);

// Reads these names, and "q8_0", which is what llama.cpp calls its nearest kind of "q8".
Result<cpu::KvElement> ParseKvType(std::string_view name);

}  // namespace kvant
