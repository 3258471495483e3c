// Keys and values as codes of 8 bits with one float scale per token and head: keys [k_dim / 4
// rounded up][16][4] bytes code + 128, which is what products of unsigned and signed bytes read,
// values [v_dim][4] signed bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cpu/kv_formats/parts.h"
#include "cpu/kv_formats/tiles.h"
#include "kvant/kv_type.h"

namespace kvant::cpu {

// Dimensions of a head that is stored as int8, at most.
inline constexpr int kKvQ8DimMax = 1024;

// All numbers of a head share the scale.
struct KvInt8 : KvWholeBytes<int8_t>, KvFloatScales<kKvQ8DimMax> {
  static constexpr KvType kType = KvType::kQ8;
  static constexpr std::string_view kName = "q8";
  static constexpr std::string_view kOtherName = "q8_0";  // llama.cpp's nearest kind
  static constexpr int kCodeMax = 127;
  static constexpr bool kIsRotated = true;
  static constexpr bool kHasVectorKernels = true;
  static constexpr int kDimMax = kKvQ8DimMax;
  static constexpr bool kOnDevice = true;
  static constexpr std::byte kKeyFlip{0x80};  // from a signed code to the byte of a key tile
  static constexpr size_t KeyDims(size_t k_dim) { return (k_dim + 3) / 4 * 4; }
  static constexpr size_t KeyPlace(size_t slot, size_t d) {
    return (d / 4 * kKeyTileTokens + slot) * 4 + d % 4;
  }
  static constexpr size_t ValuePlace(size_t slot, size_t d, size_t /*v_dim*/) {
    return d * kValueTileTokens + slot;
  }
  static constexpr size_t KeyTileBytes(size_t k_dim) { return KeyPlace(0, KeyDims(k_dim)); }
  static constexpr size_t ValueTileBytes(size_t v_dim) { return ValuePlace(0, v_dim, v_dim); }
  static int8_t Key(const std::byte* tile, size_t slot, size_t d) {
    return static_cast<int8_t>(tile[KeyPlace(slot, d)] ^ kKeyFlip);
  }
  static void PutKey(std::byte* tile, size_t slot, size_t d, int8_t code) {
    tile[KeyPlace(slot, d)] = static_cast<std::byte>(code) ^ kKeyFlip;
  }
  static int8_t Value(const std::byte* tile, size_t slot, size_t d, size_t v_dim) {
    return static_cast<int8_t>(tile[ValuePlace(slot, d, v_dim)]);
  }
  static void PutValue(std::byte* tile, size_t slot, size_t d, size_t v_dim, int8_t code) {
    tile[ValuePlace(slot, d, v_dim)] = static_cast<std::byte>(code);
  }
  static int Decode(int8_t code) { return code; }
};

}  // namespace kvant::cpu
