// The generator that ik_llama.cpp's trellis formats have in common. It makes 8 values (4 in IQ4_KT)
// from an index of 13 to 16 bits. Nothing is looked up, and the values are spread like those of a
// normal distribution: sums of four numbers of 6 bits.
//
//   state[0] = 4096 + index;  state[k + 1] = 0xcbac1fed * state[k] mod 2^32
//   number[k] = sum over the bytes b of state[k + 1] of (b mod 64), minus 126
//
// Source of the constants: QuantizerIQKT in ik_llama.cpp's iqk_quantize.cpp, August 2026.
//
// Thread-safety: pure functions. Results are the same whatever the width of the machine's vectors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "quant/block.h"
#include "quant/format.h"

namespace kvant::quant {

inline constexpr uint32_t kTrellisFactor = 0xcbac1fed;
inline constexpr uint32_t kTrellisStart = 4096;

// kTrellisPowers[k] * state[0] = state[k + 1]
inline constexpr std::array<uint32_t, 8> kTrellisPowers = [] {
  std::array<uint32_t, 8> powers{};
  uint32_t power = 1;
  for (uint32_t& p : powers) p = power *= kTrellisFactor;
  return powers;
}();

// Number k that an index stands for, -126 .. 126.
constexpr int TrellisNumber(uint32_t index, int k) {
  const uint32_t fields =
      kTrellisPowers[static_cast<size_t>(k)] * (kTrellisStart + index) & 0x3f3f3f3f;
  return static_cast<int>((fields & 255) + (fields >> 8 & 255) + (fields >> 16 & 255) +
                          (fields >> 24)) -
         126;
}

// The fields of a block of 256 values.
struct TrellisFit {
  int16_t scales[8];     // of 32 values, as the format stores it
  uint32_t negative[8];  // IQ3_KT: bit i % 32 of word i / 32 where a value is below zero
  uint16_t indices[64];  // IQ4_KT has as many, the others the first 32
};
struct TrellisRowFit {
  float d;
  std::vector<TrellisFit> blocks;
};

// They look for a small sum_i w_i (x_i - decode_i)^2, not the least one, under the rules of
// quant/search/scale_search.h for weights, for values that are not finite, and for very small ones.
TrellisRowFit FitIq1Kt(const float* values, const float* importance, int64_t count);
TrellisRowFit FitIq2Kt(const float* values, const float* importance, int64_t count);
TrellisRowFit FitIq3Kt(const float* values, const float* importance, int64_t count);
TrellisRowFit FitIq4Kt(const float* values, const float* importance, int64_t count);

// The integer form of a block whose format has Index(block, g), Scale(block, g / (32 / kPoint))
// and, where signs lie apart, Negative(block, i).
template <class Format, int kPoint>
void TrellisToIntegers(const typename Format::Block& block, IntegerBlock& out) {
  for (int i = 0; i < 256; ++i) {
    int number = TrellisNumber(Format::Index(block, i / kPoint), i % kPoint);
    if constexpr (requires { Format::Negative(block, i); }) {
      number = Format::Negative(block, i) ? -std::abs(number) : std::abs(number);
    }
    out.codes[i] = static_cast<int8_t>(number);
  }
  for (int group = 0; group < 8; ++group) {
    SetScale(out, 32 * group, 32, static_cast<float>(Format::Scale(block, group)));
  }
}

}  // namespace kvant::quant
