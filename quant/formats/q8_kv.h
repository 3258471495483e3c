// Q8_KV: rows of 8-bit codes with one scale. 8 bits per value, and 8 bytes for each row. Of
// ik_llama.cpp.
//
//   row:   | d (f32) | sum of the codes (i32) | codes, one byte each |
//
//   value[i] = d * c[i]
//
// The sum serves ik_llama.cpp's products; it is written and never read.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "quant/block.h"
#include "quant/format.h"
#include "quant/row_head.h"

namespace kvant::quant {

struct Q8_KV {
  static constexpr TensorType kType{151};
  static constexpr const char* kName = "Q8_KV";
  static constexpr int kBlockValues = 32;
  static constexpr bool kHasOffsets = false;

  struct Head {
    FloatHead d;
    PackedU32 sum;
  };
  struct Block {
    int8_t codes[32];
  };
  static_assert(sizeof(Head) == 8);
  static_assert(sizeof(Block) == 32 && alignof(Block) == 1);

  static float Factor(const Head& head) { return head.d.value(); }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    std::memcpy(out.codes, block.codes, sizeof(block.codes));
    SetScale(out, 0, kBlockValues, 1.0f);
  }

  // The largest magnitude becomes 127; then the scale becomes the best one for the codes. NaN
  // becomes 0, infinities the largest number.
  static void EncodeRow(const float* values, const float* importance, std::byte* row,
                        int64_t count) {
    constexpr double kMax = std::numeric_limits<float>::max();
    const auto usable = [&](int64_t i) {
      return std::isnan(values[i]) ? 0.0 : std::clamp(double{values[i]}, -kMax, kMax);
    };
    double largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(usable(i)));
    const double inverse = largest < 0x1p-120 ? 0 : 127 / largest;
    const bool weighs =
        importance != nullptr && std::any_of(importance, importance + count,
                                             [](float w) { return std::isfinite(w) && w > 0; });
    auto* codes = reinterpret_cast<int8_t*>(row + sizeof(Head));
    int64_t sum = 0;
    double products = 0;
    double squares = 0;
    for (int64_t i = 0; i < count; ++i) {
      codes[i] = static_cast<int8_t>(std::nearbyint(usable(i) * inverse));
      sum += codes[i];
      double weight = 1;
      if (weighs) weight = std::isfinite(importance[i]) ? std::max(importance[i], 0.0f) : 0;
      products += weight * usable(i) * codes[i];
      squares += weight * codes[i] * codes[i];
    }
    double d = inverse == 0 ? 0 : largest / 127;
    if (squares > 0 && products > 0) d = std::min(products / squares, kMax / 128);
    Head head{FloatHead::Of(static_cast<float>(d)), {}};
    head.sum.Set(static_cast<uint32_t>(sum));
    std::memcpy(row, &head, sizeof(head));
  }
};

}  // namespace kvant::quant
