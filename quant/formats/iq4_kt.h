// IQ4_KT: 256 values in groups of 4, each a 15-bit index (quant/formats/trellis.h); each 32 values
// have a 7-bit scale and a bit that is the highest of their indices. 128 bytes, 4 bits per value,
// and 4 bytes for each row. Of ik_llama.cpp.
//
//   row:   | d (f32) | blocks |
//   byte   0                      31   32              95   96             127
//        | words of 32 values, u32     | low 8 of indices    | next 4 of indices |
//
//   word:   bits 31..8: bits 14..12 of the indices 7 .. 0 of its groups | 7..1: s | 0: bit 15 |
//   middle: byte b = | of index b + 32 | of index b |
//
//   value[i] = (d * (s[i / 32] - 64)) * number(index[i / 4], i % 4)
#pragma once

#include "quant/block.h"
#include "quant/format.h"
#include "quant/formats/trellis.h"
#include "quant/packed_word.h"
#include "quant/row_head.h"

namespace kvant::quant {

struct IQ4_KT {
  static constexpr TensorType kType{155};
  static constexpr const char* kName = "IQ4_KT";
  static constexpr int kBlockValues = 256;
  static constexpr bool kHasOffsets = false;
  static constexpr int kPoint = 4;

  using Head = FloatHead;
  struct Block {
    PackedU32 words[8];
    uint8_t low[64];
    uint8_t middle[32];
  };
  static_assert(sizeof(Block) == 128 && alignof(Block) == 1);
  using Middle = BitPlane<4, 32>;

  static float Factor(const Head& head) { return head.value(); }

  static int Scale(const Block& block, int group) {
    return static_cast<int>(block.words[group].value() >> 1 & 127) - 64;
  }

  static uint32_t Index(const Block& block, int g) {
    const uint32_t word = block.words[g / 8].value();
    return (word & 1) << 15 | (word >> (8 + 3 * (g % 8)) & 7) << 12 |
           static_cast<uint32_t>(Middle::Get(block.middle, g)) << 8 | block.low[g];
  }

  static void ToIntegers(const Block& block, IntegerBlock& out) {
    TrellisToIntegers<IQ4_KT, 4>(block, out);
  }

  static void Pack(const TrellisFit& fit, Block& block) {
    for (int group = 0; group < 8; ++group) {
      uint32_t word = static_cast<uint32_t>(fit.scales[group]) << 1;
      for (int g = 8 * group; g < 8 * group + 8; ++g) {
        const uint32_t index = fit.indices[g];
        word |= index >> 15 | (index >> 12 & 7) << (8 + 3 * (g % 8));
        block.low[g] = static_cast<uint8_t>(index);
        Middle::Put(block.middle, g, static_cast<int>(index >> 8));
      }
      block.words[group].Set(word);
    }
  }

  static void EncodeRow(const float* values, const float* importance, std::byte* row,
                        int64_t count) {
    PackRow<IQ4_KT>(FitIq4Kt(values, importance, count), row);
  }
};

}  // namespace kvant::quant
