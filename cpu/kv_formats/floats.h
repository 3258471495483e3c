// Keys and values as floats of 32 or 16 bits, without scales: keys [k_dim][16], values [4][v_dim].
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "base/half.h"
#include "cpu/kv_formats/parts.h"
#include "cpu/kv_formats/tiles.h"
#include "kvant/kv_type.h"

namespace kvant::cpu {

template <class NumberType>
struct KvFloats : KvWholeBytes<NumberType>, KvNoScales {
  using Number = NumberType;
  static constexpr std::string_view kOtherName = "";
  static constexpr bool kIsRotated = false;
  static constexpr bool kHasVectorKernels = true;
  static constexpr int kDimMax = std::numeric_limits<int>::max();
  static constexpr size_t KeyDims(size_t k_dim) { return k_dim; }
  static constexpr size_t KeyPlace(size_t slot, size_t d) {
    return (d * kKeyTileTokens + slot) * sizeof(Number);
  }
  static constexpr size_t ValuePlace(size_t slot, size_t d, size_t v_dim) {
    return (slot * v_dim + d) * sizeof(Number);
  }
  static constexpr size_t KeyTileBytes(size_t k_dim) { return KeyPlace(0, k_dim); }
  static constexpr size_t ValueTileBytes(size_t v_dim) {
    return ValuePlace(kValueTileTokens, 0, v_dim);
  }
  static Number Key(const std::byte* tile, size_t slot, size_t d) {
    return KvFloats::Load(tile + KeyPlace(slot, d));
  }
  static void PutKey(std::byte* tile, size_t slot, size_t d, Number number) {
    KvFloats::Store(tile + KeyPlace(slot, d), number);
  }
  static Number Value(const std::byte* tile, size_t slot, size_t d, size_t v_dim) {
    return KvFloats::Load(tile + ValuePlace(slot, d, v_dim));
  }
  static void PutValue(std::byte* tile, size_t slot, size_t d, size_t v_dim, Number number) {
    KvFloats::Store(tile + ValuePlace(slot, d, v_dim), number);
  }
};

struct KvF32 : KvFloats<float> {
  static constexpr KvType kType = KvType::kF32;
  static constexpr std::string_view kName = "f32";
  static constexpr bool kOnDevice = false;
  static float FromFloat(float value) { return value; }
  static float Decode(float number) { return number; }
};

struct KvF16 : KvFloats<uint16_t> {
  static constexpr KvType kType = KvType::kF16;
  static constexpr std::string_view kName = "f16";
  static constexpr bool kOnDevice = true;
  // Clamped to the finite range, so that only NaN in gives a number that is not finite.
  static uint16_t FromFloat(float value) {
    constexpr float kMax = 65504.0f;
    return F32ToF16(value != value ? value : std::clamp(value, -kMax, kMax));
  }
  static float Decode(uint16_t number) { return F16ToF32(number); }
};

}  // namespace kvant::cpu
