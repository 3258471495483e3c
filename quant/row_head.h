// What rows of some formats begin with: a number that multiplies all scales of the row.
#pragma once

#include <bit>
#include <cstdint>

#include "quant/block.h"
#include "quant/packed_word.h"

namespace kvant::quant {

struct FloatHead {
  PackedU32 bits;

  float value() const { return std::bit_cast<float>(bits.value()); }
  static FloatHead Of(float value) {
    FloatHead head{};
    head.bits.Set(std::bit_cast<uint32_t>(value));
    return head;
  }
};

struct HalfHead {
  PackedHalf half;

  float value() const { return half.value(); }
  static HalfHead Of(float value) { return {PackedHalf::Nearest(value)}; }
};

}  // namespace kvant::quant
