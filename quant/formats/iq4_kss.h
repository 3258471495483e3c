// IQ4_KSS: 256 values as 4-bit codes that stand for 16 unequally spaced levels, of which four
// together have an even number of bits; each 32 have an odd 8-bit scale in units of the row's d and
// a bit that shifts their levels. 128 bytes, 4 bits per value, and 4 bytes for each row. Of
// ik_llama.cpp.
//
//   row:   | d (f32) | blocks |
//   a block: eight runs of eight words of 16 bits. Bit 0 of word k of a run is bit k of the byte
//   s = scale + 127, whose bit 0 says that the levels are shifted. Bits 15 to 1, a word w with bit
//   0 clear, give four codes, w ^ w >> 1, of values 2k, 2k + 16, 2k + 1, 2k + 17 of 32:
//        bits 3..0, 7..4, 11..8, 15..12
//
//   value[i] = (d * ((s[i / 32] & 254) - 127)) * (level(c[i]) + 4 * (s[i / 32] & 1))
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/packed_word.h"
#include "quant/search/shifted_fit.h"

namespace kvant::quant {

struct IQ4_KSS {
  static constexpr TensorType kType{146};
  static constexpr const char* kName = "IQ4_KSS";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr const auto& kLevels = kShiftedLevels4;

  using Head = FloatHead;
  struct Block {
    PackedU16 words[64];
  };
  static_assert(sizeof(Head) == 4);
  static_assert(sizeof(Block) == 128 && alignof(Block) == 1);

  static float Factor(const Head& head) { return head.value(); }

  static int ScaleByte(const Block& block, int group) {
    uint32_t byte = 0;
    for (int k = 0; k < 8; ++k) byte |= (block.words[8 * group + k].value() & 1) << k;
    return static_cast<int>(byte);
  }
  static int Scale(const Block& block, int group) { return (ScaleByte(block, group) & 254) - 127; }

  static int Code(const Block& block, int i) {
    const uint32_t word = block.words[i / 32 * 8 + i % 16 / 2].value() & 0xfffe;
    return static_cast<int>((word ^ word >> 1) >> (i % 2 * 8 + i % 32 / 16 * 4) & 15);
  }

  static uint32_t Shifted(const Block& block, int group) {
    return static_cast<uint32_t>(ScaleByte(block, group)) & 1;
  }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    for (int i = 0; i < kBlockValues; ++i) {
      const int code = Code(block, i);
      out.codes[i] = kLevels.Get(code, Shifted(block, i / 32));
    }
    for (int group = 0; group < 8; ++group) {
      SetScale(out, 32 * group, 32, static_cast<float>(Scale(block, group)));
    }
  }

  static void Pack(const ShiftedFit& fit, Block& block) {
    for (int group = 0; group < 8; ++group) {
      const int byte = (fit.scales[group] + 127) | static_cast<int>(fit.shifted[group]);
      for (int k = 0; k < 8; ++k) {
        const uint8_t* codes = fit.codes + 32 * group + 2 * k;
        uint32_t word = uint32_t{codes[0]} | codes[16] * 16u | codes[1] * 256u | codes[17] * 4096u;
        for (int shift = 1; shift < 16; shift *= 2) word ^= word >> shift;
        block.words[8 * group + k].Set((word & 0xfffe) | (static_cast<uint32_t>(byte) >> k & 1));
      }
    }
  }

  static void EncodeRow(const float* values, const float* importance, std::byte* row,
                        int64_t count) {
    PackRow<IQ4_KSS>(FitIq4Kss(values, importance, count), row);
  }
};

}  // namespace kvant::quant
