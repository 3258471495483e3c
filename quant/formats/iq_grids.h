// The codebooks of the IQ1, IQ2 and IQ3 formats: sets of points with 8 or 4 coordinates. A block
// names a point by its rank in the set, and stores signs (IQ2, IQ3) or a shift (IQ1) beside it.
//
// The sets are part of the formats; their source is ggml-common.h of llama.cpp. Every index that
// the formats' bits can hold lies inside its table.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace kvant::quant {

// kDims coordinates, each one of kBase numbers.
template <int kDimsValue, int kCountValue, int kBaseValue>
struct Grid {
  static constexpr int kDims = kDimsValue;
  static constexpr int kCount = kCountValue;
  int8_t points[kCount][kDims];

  // Searches look at halves: the lower and the upper half of a point's coordinates are one of
  // kHalves patterns each. Points are in the order of their upper pattern: points starts[h] to
  // starts[h+1] have the upper pattern h, and lower[point] is a point's lower pattern.
  static constexpr int kHalfDims = kDims / 2;
  static constexpr int kHalves =
      kDims == 8 ? kBaseValue * kBaseValue * kBaseValue * kBaseValue : kBaseValue * kBaseValue;
  static constexpr int kPatterns = kDims == 8 ? kBaseValue * kBaseValue : kBaseValue;  // of a part
  uint8_t lower[kCount];
  uint16_t starts[kHalves + 1];
};

// Multiples of 8: the shift of +-1/8 is then +-1.
extern const Grid<8, 2048, 3> kIq1Grid;
// Magnitudes; every value has a sign of its own.
extern const Grid<8, 256, 3> kIq2XxsGrid;
extern const Grid<8, 512, 3> kIq2XsGrid;
extern const Grid<8, 1024, 3> kIq2SGrid;
extern const Grid<4, 256, 8> kIq3XxsGrid;
extern const Grid<4, 512, 8> kIq3SGrid;

// The digits 0, 1 and 2 of the points of kIq1Grid.
struct TernaryDigits {
  alignas(64) int8_t points[2048][8];
};
extern const TernaryDigits kIq1Digits;

// The levels of the digits of a point's coordinates.
inline constexpr int8_t kIq2Levels[] = {8, 25, 43};
inline constexpr int8_t kIq3XxsLevels[] = {4, 12, 20, 28, 36, 44, 52, 62};
inline constexpr int8_t kIq3SLevels[] = {1, 3, 5, 7, 9, 11, 13, 15};

// The points of a grid as 16-bit words of digits, kBits each: digit j begins at bit j / 2 * kBits +
// j % 2 * 8. So a table of 256 points fits eight vectors of 64 bytes.
template <int kCount, int kBitsValue>
struct PackedPoints {
  static constexpr int kBits = kBitsValue;
  alignas(64) uint16_t words[kCount];
  // The lower and the upper bytes of the words.
  alignas(64) uint8_t bytes[2][kCount];

  static constexpr int BitOf(int digit) { return digit / 2 * kBits + digit % 2 * 8; }
};

// The points of the grid of IQ1 as two bytes of four digits, two bits each. The upper ones ascend,
// and no sixteen points that follow each other have more than two.
struct PackedTernary {
  alignas(64) uint8_t lower[2048];
  // The upper bytes of points 16 i to 16 i + 15: the first first_count[i] points have first[i], the
  // others last[i].
  alignas(64) uint8_t first[128];
  alignas(64) uint8_t last[128];
  alignas(64) uint8_t first_count[128];
};
extern const PackedTernary kIq1Packed;
extern const PackedPoints<1024, 2> kIq2SPacked;
extern const PackedPoints<256, 2> kIq2XxsPacked;
extern const PackedPoints<512, 2> kIq2XsPacked;
extern const PackedPoints<256, 3> kIq3XxsPacked;
extern const PackedPoints<512, 3> kIq3SPacked;

// Where only seven of eight signs are stored, the number of minus signs is even.
constexpr int EvenSigns(int seven) {
  return seven | (std::popcount(static_cast<uint32_t>(seven)) & 1) << 7;
}

// codes[j] = +-point[j], minus where bit j of `signs` is set; no coordinate is 0. All at once in
// the bytes of a word, because signs are what no branch predictor guesses.
inline void PutSigned(const int8_t* point, int dims, int signs, int8_t* codes) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  const size_t bytes = static_cast<size_t>(dims);
  uint64_t word = 0;
  std::memcpy(&word, point, bytes);
  const uint64_t bits = (kOnes * (static_cast<uint32_t>(signs) & 255)) & 0x8040201008040201;
  const uint64_t minus = (bits + 0x7f * kOnes) >> 7 & kOnes;
  word = (word ^ minus * 255) + minus;
  std::memcpy(codes, &word, bytes);
}

}  // namespace kvant::quant
