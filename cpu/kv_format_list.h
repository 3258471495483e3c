// The formats of keys and values in the cache: an entry of the list per format. Each says, once,
// where a number of a token lies, how many bytes a tile has, what a number is worth, and whether
// tokens have scales; kernels for speed may walk the same places by strides. Formats are named by
// KvType.
//
// Keys lie in tiles of kKeyTileTokens tokens, so that sixteen scores fill one vector without a
// horizontal sum; values in tiles of kValueTileTokens tokens. A place is in bytes from the begin of
// the tile that holds the token; `slot` is the token's number in it, `d` the number of the
// dimension.
//
// A format defines
//   kType                              its number in interfaces and files
//   kName, kOtherName                  in options and messages; another name that is understood
//   kHasScales                         one float per token and head for each side
//   kIsRotated                         vectors are rotated before they are stored, unless a session
//                                      wants them as they are: so that outliers spread
//   kDimMax                            dimensions of a head, at most
//   kOnDevice                          whether a CUDA device stores and reads it
//   Number                             as a number is stored, without a scale
//   KeyPlace(slot, d), KeyTileBytes(k_dim)
//   ValuePlace(slot, d, v_dim), ValueTileBytes(v_dim)
//   KeyDims(k_dim)                     dimensions that a key tile has places for
//   KeyNumber(bytes), ValueNumber(bytes)   the number there, before its scale
//   FromFloat(value)                   of formats without scales
//   kKeyFlip                           what the first byte of a key's number is XORed with, to be
//                                      as the same number of a value is
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "base/half.h"
#include "kvant/kv_type.h"

namespace kvant::cpu {

// Positions of a tile.
inline constexpr int kKeyTileTokens = 16;
inline constexpr int kValueTileTokens = 4;

// Dimensions of a head that is stored as int8, at most.
inline constexpr int kKvQ8DimMax = 1024;

// Numbers as they are: keys [k_dim][16], values [4][v_dim].
template <class NumberType>
struct KvNumbers {
  using Number = NumberType;
  static constexpr std::string_view kOtherName = "";
  static constexpr bool kHasScales = false;
  static constexpr bool kIsRotated = false;
  static constexpr int kDimMax = std::numeric_limits<int>::max();
  static constexpr std::byte kKeyFlip{0};
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

 protected:
  static Number Load(const std::byte* bytes) {
    Number number;
    std::memcpy(&number, bytes, sizeof number);
    return number;
  }
};

struct KvF32 : KvNumbers<float> {
  static constexpr KvType kType = KvType::kF32;
  static constexpr std::string_view kName = "f32";
  static constexpr bool kOnDevice = false;
  static float FromFloat(float value) { return value; }
  static float KeyNumber(const std::byte* bytes) { return Load(bytes); }
  static float ValueNumber(const std::byte* bytes) { return Load(bytes); }
};

struct KvF16 : KvNumbers<uint16_t> {
  static constexpr KvType kType = KvType::kF16;
  static constexpr std::string_view kName = "f16";
  static constexpr bool kOnDevice = true;
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
  using Number = int8_t;
  static constexpr KvType kType = KvType::kQ8;
  static constexpr std::string_view kName = "q8";
  static constexpr std::string_view kOtherName = "q8_0";  // llama.cpp's nearest kind
  static constexpr bool kHasScales = true;
  static constexpr bool kIsRotated = true;
  static constexpr int kDimMax = kKvQ8DimMax;
  static constexpr bool kOnDevice = true;
  static constexpr std::byte kKeyFlip{0x80};
  static constexpr size_t KeyDims(size_t k_dim) { return (k_dim + 3) / 4 * 4; }
  static constexpr size_t KeyPlace(size_t slot, size_t d) {
    return (d / 4 * kKeyTileTokens + slot) * 4 + d % 4;
  }
  static constexpr size_t ValuePlace(size_t slot, size_t d, size_t /*v_dim*/) {
    return d * kValueTileTokens + slot;
  }
  static constexpr size_t KeyTileBytes(size_t k_dim) { return KeyPlace(0, KeyDims(k_dim)); }
  static constexpr size_t ValueTileBytes(size_t v_dim) { return ValuePlace(0, v_dim, v_dim); }
  static int KeyNumber(const std::byte* bytes) { return static_cast<int>(*bytes) - 128; }
  static int ValueNumber(const std::byte* bytes) { return static_cast<int8_t>(*bytes); }
};

template <class... Formats>
struct KvFormatTypes {};

using KvFormatList = KvFormatTypes<KvF32, KvF16, KvInt8>;

template <class Visit, class First, class... Rest>
constexpr decltype(auto) VisitKvFormatOf(KvFormatTypes<First, Rest...> /*list*/, KvType type,
                                         const Visit& visit) {
  if constexpr (sizeof...(Rest) > 0) {
    if (type != First::kType) return VisitKvFormatOf(KvFormatTypes<Rest...>(), type, visit);
  }
  return visit(First());
}

// visit(Format()) for the format of a type.
template <class Visit>
constexpr decltype(auto) VisitKvFormat(KvType type, const Visit& visit) {
  return VisitKvFormatOf(KvFormatList(), type, visit);
}

// A row of the list.
struct KvTraits {
  KvType type;
  std::string_view name;
  std::string_view other_name;  // "": none
  bool has_scales;
  bool is_rotated;
  int dim_max;
  bool on_device;
};

template <class Format>
inline constexpr KvTraits kKvTraits = {Format::kType,      Format::kName,      Format::kOtherName,
                                       Format::kHasScales, Format::kIsRotated, Format::kDimMax,
                                       Format::kOnDevice};

constexpr const KvTraits& KvTraitsOf(KvType type) {
  return VisitKvFormat(type,
                       []<class Format>(Format) -> const KvTraits& { return kKvTraits<Format>; });
}

constexpr bool KvHasScales(KvType type) { return KvTraitsOf(type).has_scales; }

// Bytes of one number, without scales; of the tiles of one kv head.
constexpr size_t KvNumberBytes(KvType type) {
  return VisitKvFormat(type, []<class Format>(Format) { return sizeof(typename Format::Number); });
}
constexpr size_t KvKeyTileBytes(KvType type, int k_dim) {
  return VisitKvFormat(type, [k_dim]<class Format>(Format) {
    return Format::KeyTileBytes(static_cast<size_t>(k_dim));
  });
}
constexpr size_t KvValueTileBytes(KvType type, int v_dim) {
  return VisitKvFormat(type, [v_dim]<class Format>(Format) {
    return Format::ValueTileBytes(static_cast<size_t>(v_dim));
  });
}

// Where a token of a block or run lies: bytes from the first tile to the token's.
constexpr size_t KeyTileOffset(KvType type, int k_dim, size_t token) {
  return token / kKeyTileTokens * KvKeyTileBytes(type, k_dim);
}
constexpr size_t ValueTileOffset(KvType type, int v_dim, size_t token) {
  return token / kValueTileTokens * KvValueTileBytes(type, v_dim);
}

}  // namespace kvant::cpu
