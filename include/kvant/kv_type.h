// The number formats in which a KV cache can store keys and values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "kvant/result.h"

namespace kvant {

enum class KvType : uint8_t {
  kF32,
  kF16,
  // Symmetric int8 with one scale per token and kv head: scale = absmax / 127, code = value / scale
  // to nearest even, in [-127, 127]; code and scale 0 for a vector of zeros, scale NaN where a
  // value is not finite. Never rewritten once stored.
  kQ8,
};

// In the order of their numbers, which begin at 0.
std::span<const KvType> AllKvTypes();

// "f16" for kF16.
std::string_view KvTypeName(KvType type);

// "f32, f16 or q8"
std::string KvTypeNames(std::span<const KvType> types = AllKvTypes());

// Reads the names of KvTypeName, and the names that llama.cpp has for its nearest kinds: "q8_0" for
// kQ8.
Result<KvType> ParseKvType(std::string_view name);

}  // namespace kvant
