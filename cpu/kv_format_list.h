// The formats of keys and values in the cache: an entry of the list per format. Each says, once,
// where a number of a token lies, what it is worth, and whether tokens have scales; kernels for
// speed may walk the same places by strides. Formats are quoted by cpu::KvElement.
//
// Keys lie in tiles of kKeyTileTokens tokens, so that sixteen scores fill one vector without a
// horizontal sum; values in groups of kValueGroupTokens tokens (cpu/kernels.h has the bytes of
// both). A place is in bytes from the begin of the tile or group that holds the token; `slot` is
// the token's number in it, `d` the number of the dimension.
//
// A format defines
//   kElement, kName, kHasScales        kHasScales: one float per token and head for each side
//   KeyPlace(slot, d)                  of a key's number
//   ValuePlace(slot, d, v_dim)         of a value's number
//   KeyNumber(bytes), ValueNumber(bytes)   the number there, before its scale
//   FromFloat(value)                   of formats without scales
//   kKeyFlip                           what the first byte of a key's number is XORed with, to be
//                                      as the same number of a value is
// and, where a tile holds more dimensions than the key has, KeyDims(k_dim).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/half.h"
#include "cpu/kernels.h"

namespace kvant::cpu {

// Numbers as they are: keys [k_dim][16], values [4][v_dim].
template <class Number>
struct KvNumbers {
  static constexpr bool kHasScales = false;
  static constexpr std::byte kKeyFlip{0};
  static constexpr size_t KeyDims(size_t k_dim) { return k_dim; }
  static constexpr size_t KeyPlace(size_t slot, size_t d) {
    return (d * kKeyTileTokens + slot) * sizeof(Number);
  }
  static constexpr size_t ValuePlace(size_t slot, size_t d, size_t v_dim) {
    return (slot * v_dim + d) * sizeof(Number);
  }

 protected:
  static Number Load(const std::byte* bytes) {
    Number number;
    std::memcpy(&number, bytes, sizeof number);
    return number;
  }
};

struct KvF32 : KvNumbers<float> {
  static constexpr KvElement kElement = KvElement::kF32;
  static constexpr std::string_view kName = "f32";
  static float FromFloat(float value) { return value; }
  static float KeyNumber(const std::byte* bytes) { return Load(bytes); }
  static float ValueNumber(const std::byte* bytes) { return Load(bytes); }
};

struct KvF16 : KvNumbers<uint16_t> {
  static constexpr KvElement kElement = KvElement::kF16;
  static constexpr std::string_view kName = "f16";
  // Clamped to the finite range, so that only NaN in gives a number that is not finite.
  static uint16_t FromFloat(float value) {
    constexpr float kMax = 65504.0f;
    return F32ToF16(value != value ? value : std::clamp(value, -kMax, kMax));
  }
  static float KeyNumber(const std::byte* bytes) { return F16ToF32(Load(bytes)); }
  static float ValueNumber(const std::byte* bytes) { return F16ToF32(Load(bytes)); }
};

// Codes with a scale per token: keys [k_dim / 4 rounded up][16][4] bytes code + 128, which is what
// products of unsigned and signed bytes read, values [v_dim][4] signed bytes.
struct KvInt8 {
  static constexpr KvElement kElement = KvElement::kQ8;
  static constexpr std::string_view kName = "q8";
  static constexpr bool kHasScales = true;
  static constexpr std::byte kKeyFlip{0x80};
  static constexpr size_t KeyDims(size_t k_dim) { return (k_dim + 3) / 4 * 4; }
  static constexpr size_t KeyPlace(size_t slot, size_t d) {
    return (d / 4 * kKeyTileTokens + slot) * 4 + d % 4;
  }
  static constexpr size_t ValuePlace(size_t slot, size_t d, size_t /*v_dim*/) {
    return d * kValueGroupTokens + slot;
  }
  static int KeyNumber(const std::byte* bytes) { return static_cast<int>(*bytes) - 128; }
  static int ValueNumber(const std::byte* bytes) { return static_cast<int8_t>(*bytes); }
};

template <class... Formats>
struct KvFormatTypes {};

using KvFormatList = KvFormatTypes<KvF32, KvF16, KvInt8>;

template <class Visit, class First, class... Rest>
decltype(auto) VisitKvFormatOf(KvFormatTypes<First, Rest...> /*list*/, KvElement element,
                               const Visit& visit) {
  if constexpr (sizeof...(Rest) > 0) {
    if (element != First::kElement) {
      return VisitKvFormatOf(KvFormatTypes<Rest...>(), element, visit);
    }
  }
  return visit(First());
}

// visit(Format()) for the format of an element.
template <class Visit>
decltype(auto) VisitKvFormat(KvElement element, const Visit& visit) {
  return VisitKvFormatOf(KvFormatList(), element, visit);
}

// Where a token of a block or run lies: bytes from its first tile or group.
inline size_t KeyTileOffset(KvElement element, int k_dim, size_t token) {
  return token / kKeyTileTokens * KvKeyTileBytes(element, k_dim);
}
inline size_t ValueGroupOffset(KvElement element, int v_dim, size_t token) {
  return token / kValueGroupTokens * KvValueGroupBytes(element, v_dim);
}

}  // namespace kvant::cpu
