// The formats of keys and values in the cache: a file of cpu/kv_formats/ and an entry of the list
// per format. Each says, once, where a number of a token lies, how many bytes a tile has, what a
// number is worth, and how many numbers share a scale; kernels for speed may walk the same places
// by strides. Formats are named by KvType.
//
// Numbers lie in tiles (cpu/kv_formats/tiles.h): `slot` is a token's number in its tile, `d` the
// number of the dimension. A token's scales lie apart from the tiles, one after the other. A plain
// row has a token's numbers in order of dimension, as in files.
//
// A format defines
//   kType                              its number in interfaces and files
//   kName, kOtherName                  in options and messages; another name that is understood
//   kBits                              bits of a number in a plain row
//   kHasScales, kNumbersPerScale       whether adjacent dimensions share a scale, and how many (0)
//   kScaleBytes                        bytes of a scale
//   kIsRotated                         vectors are rotated before they are stored, unless a session
//                                      wants them as they are: so that outliers spread
//   kDimMax                            dimensions of a head, at most
//   kHasVectorKernels                  instruction sets have kernels for it; otherwise plain code
//                                      (cpu/scalar) stores it and attends to it everywhere
//   kOnDevice                          whether a CUDA device stores and reads it
//   Number                             as a number is stored, without its scale
//   KeyTileBytes(k_dim), ValueTileBytes(v_dim)
//   KeyDims(k_dim)                     dimensions that a key tile has places for; those from k_dim
//                                      on hold the number zero
//   Key(tile, slot, d), PutKey(tile, slot, d, number)
//   Value(tile, slot, d, v_dim), PutValue(tile, slot, d, v_dim, number)
//   InRow(row, d), PutInRow(row, d, number)   in a plain row; put in order of dimension
//   Decode(number)                     what it is worth before its scale: an int where there are
//                                      scales, and else a float
//   FromFloat(value)                   of formats without scales
//   kCodeMax                           of formats with scales: the code of the largest magnitude
//                                      that shares the scale, at most 127
//   LoadScale(bytes), StoreScale(bytes, scale)   of formats with scales; from 0 on, or NaN
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "cpu/kv_formats/floats.h"
#include "cpu/kv_formats/int8.h"
#include "cpu/kv_formats/tiles.h"
#include "kvant/kv_type.h"

namespace kvant::cpu {

template <class... Formats>
struct KvFormatTypes {};

// In the order of KvType.
using KvFormatList = KvFormatTypes<KvF32, KvF16, KvInt8>;

// Appends the formats that have vector kernels to `Kept`.
template <class Kept, class... Formats>
struct KvVectorFormatsOf {
  using List = Kept;
};
template <class... Kept, class First, class... Rest>
struct KvVectorFormatsOf<KvFormatTypes<Kept...>, KvFormatTypes<First, Rest...>>
    : KvVectorFormatsOf<std::conditional_t<First::kHasVectorKernels, KvFormatTypes<Kept..., First>,
                                           KvFormatTypes<Kept...>>,
                        KvFormatTypes<Rest...>> {};
using KvVectorFormatList = KvVectorFormatsOf<KvFormatTypes<>, KvFormatList>::List;

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

// visit(Format()) in the kernels of an instruction set, which never see other formats.
template <class Visit>
constexpr decltype(auto) VisitKvVectorFormat(KvType type, const Visit& visit) {
  return VisitKvFormatOf(KvVectorFormatList(), type, visit);
}

// A row of the list.
struct KvTraits {
  KvType type;
  std::string_view name;
  std::string_view other_name;  // "": none
  int bits;
  int numbers_per_scale;
  size_t scale_bytes;
  bool is_rotated;
  int dim_max;
  bool has_vector_kernels;
  bool on_device;

  // Bytes of `count` numbers of a token in a plain row, and of their scales.
  constexpr size_t RowBytes(size_t count) const {
    return (count * static_cast<size_t>(bits) + 7) / 8;
  }
  constexpr size_t ScaleBytes(size_t count) const {
    if (numbers_per_scale == 0) return 0;
    const auto each = static_cast<size_t>(numbers_per_scale);
    return (count + each - 1) / each * scale_bytes;
  }
};

template <class Format>
inline constexpr KvTraits kKvTraits = {.type = Format::kType,
                                       .name = Format::kName,
                                       .other_name = Format::kOtherName,
                                       .bits = Format::kBits,
                                       .numbers_per_scale = Format::kNumbersPerScale,
                                       .scale_bytes = Format::kScaleBytes,
                                       .is_rotated = Format::kIsRotated,
                                       .dim_max = Format::kDimMax,
                                       .has_vector_kernels = Format::kHasVectorKernels,
                                       .on_device = Format::kOnDevice};

constexpr const KvTraits& KvTraitsOf(KvType type) {
  return VisitKvFormat(type,
                       []<class Format>(Format) -> const KvTraits& { return kKvTraits<Format>; });
}

constexpr bool KvHasScales(KvType type) { return KvTraitsOf(type).numbers_per_scale != 0; }

// Bytes of a token's numbers in a plain row, and of its scales.
constexpr size_t KvRowBytes(KvType type, int64_t dim) {
  return KvTraitsOf(type).RowBytes(static_cast<size_t>(dim));
}
constexpr size_t KvScaleBytes(KvType type, int64_t dim) {
  return KvTraitsOf(type).ScaleBytes(static_cast<size_t>(dim));
}

// The scale of number d among the scales of a token.
template <class Format>
float KvScaleOf(const void* scales, size_t d) {
  return Format::LoadScale(static_cast<const std::byte*>(scales) +
                           d / Format::kNumbersPerScale * Format::kScaleBytes);
}

// Bytes of the tiles of one kv head.
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
