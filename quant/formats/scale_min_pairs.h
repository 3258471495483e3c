// The eight pairs of a 6-bit scale s and a 6-bit minimum m of a Q4_K or Q5_K block, in 12 bytes.
//
//   byte b = 0..3:     | s[b + 4] bits 5..4 | s[b], 6 bits         |
//   byte b + 4:        | m[b + 4] bits 5..4 | m[b], 6 bits         |
//   byte b + 8:        | m[b + 4] bits 3..0 | s[b + 4] bits 3..0   |
#pragma once

#include <cstdint>

namespace kvant::quant {

struct ScaleMinPairs {
  static constexpr int kPairs = 8;

  uint8_t bytes[12];

  int scale(int pair) const {
    if (pair < 4) return bytes[pair] & 63;
    return (bytes[pair - 4] >> 6 << 4) | (bytes[pair + 4] & 15);
  }
  int min(int pair) const {
    if (pair < 4) return bytes[pair + 4] & 63;
    return (bytes[pair] >> 6 << 4) | (bytes[pair + 4] >> 4);
  }

  // scales and mins: [kPairs], each 0..63.
  static ScaleMinPairs Pack(const int8_t* scales, const int8_t* mins) {
    ScaleMinPairs packed{};
    for (int b = 0; b < 4; ++b) {
      const int high_scale = scales[b + 4];
      const int high_min = mins[b + 4];
      packed.bytes[b] = static_cast<uint8_t>(high_scale >> 4 << 6 | scales[b]);
      packed.bytes[b + 4] = static_cast<uint8_t>(high_min >> 4 << 6 | mins[b]);
      packed.bytes[b + 8] = static_cast<uint8_t>((high_min & 15) << 4 | (high_scale & 15));
    }
    return packed;
  }
};
static_assert(sizeof(ScaleMinPairs) == 12 && alignof(ScaleMinPairs) == 1);

}  // namespace kvant::quant
