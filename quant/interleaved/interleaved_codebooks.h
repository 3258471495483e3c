// The blocks of several interleaved rows, as in quant/interleaved/interleaved_blocks.h, whose codes
// stand for shifted levels and for points of grids.
#pragma once

#include <cstdint>

#include "quant/format_list.h"
#include "quant/interleaved/interleaved_blocks.h"
#include "quant/search/grid_fit.h"
#include "quant/search/shifted_fit.h"

namespace kvant::quant::interleaved {

// ---- Shifted levels ----------------------------------------------------------------------------

template <class Block>
ShiftedFit ReadShifts(const Block& block, int k) {
  ShiftedFit fit{};
  fit.d = block.d[k];
  for (int g = 0; g < 16; ++g) {
    fit.shifted[g] = (block.shifted[k + g % 2 * 4] >> (g / 2) & 1) != 0;
  }
  return fit;
}

struct IQ2_K_R4 {
  using Format = IQ2_K;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  uint8_t shifted[8];
  uint8_t scales[32];
  uint8_t codes[256];

  static ShiftedFit Read(const IQ2_K_R4& block, int k) {
    ShiftedFit fit = ReadShifts(block, k);
    for (int g = 0; g < 16; ++g) {
      fit.scales[g] = static_cast<int16_t>(BitPlane<4, 32>::Get(block.scales, 4 * g + k) - 8);
    }
    for (int i = 0; i < 256; ++i) fit.codes[i] = static_cast<uint8_t>(TwoBits(block.codes, i, k));
    return fit;
  }
};

struct IQ3_K_R4 {
  using Format = IQ3_K;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  uint8_t shifted[8];
  uint8_t minus[8];
  uint8_t scales[32];
  uint8_t low[256];
  uint8_t high[128];

  static ShiftedFit Read(const IQ3_K_R4& block, int k) {
    ShiftedFit fit = ReadShifts(block, k);
    for (int g = 0; g < 16; ++g) {
      const int scale = 2 * BitPlane<4, 32>::Get(block.scales, 4 * g + k) + 1;
      const bool minus = BitPlane<1, 8>::Get(block.minus, 4 * g + k) != 0;
      fit.scales[g] = static_cast<int16_t>(minus ? -scale : scale);
    }
    for (int i = 0; i < 256; ++i) {
      const int high = OneBit(block.high, i, k, kAscending);
      fit.codes[i] = static_cast<uint8_t>(TwoBits(block.low, i, k) | high << 2);
    }
    return fit;
  }
};

template <class Block>
ShiftedFit ReadShiftsAndScales(const Block& block, int k) {
  ShiftedFit fit = ReadShifts(block, k);
  for (int g = 0; g < 16; ++g) {
    fit.scales[g] =
        static_cast<int16_t>(SixBits(block.scales_low, block.scales_high, 4 * g + k) - 32);
  }
  return fit;
}

struct IQ4_K_R4 {
  using Format = IQ4_K;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  uint8_t shifted[8];
  uint8_t scales_high[16];
  uint8_t scales_low[32];
  uint8_t codes[512];

  static ShiftedFit Read(const IQ4_K_R4& block, int k) {
    ShiftedFit fit = ReadShiftsAndScales(block, k);
    for (int i = 0; i < 256; ++i) fit.codes[i] = static_cast<uint8_t>(FourBits(block.codes, i, k));
    return fit;
  }
};

struct IQ5_K_R4 {
  using Format = IQ5_K;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  uint8_t shifted[8];
  uint8_t scales_high[16];
  uint8_t scales_low[32];
  uint8_t low[512];
  uint8_t high[128];

  static ShiftedFit Read(const IQ5_K_R4& block, int k) {
    ShiftedFit fit = ReadShiftsAndScales(block, k);
    for (int i = 0; i < 256; ++i) {
      const int high = OneBit(block.high, i, k, kOrderOfIq5K);
      fit.codes[i] = static_cast<uint8_t>(FourBits(block.low, i, k) | high << 4);
    }
    return fit;
  }
};

// The scales of IQ4_KS and IQ5_KS, with the shift in bit 0.
template <class Block>
ShiftedFit ReadScaleBytes(const Block& block, int k) {
  ShiftedFit fit{};
  for (int g = 0; g < 8; ++g) {
    const int byte = block.scales[4 * g + k];
    fit.scales[g] = static_cast<int16_t>((byte & 254) - 127);
    fit.shifted[g] = (byte & 1) != 0;
  }
  return fit;
}

struct IQ4_KS_R4 {
  using Format = IQ4_KS;
  static constexpr int kRows = 4;
  uint8_t scales[32];
  uint8_t codes[512];

  static ShiftedFit Read(const IQ4_KS_R4& block, int k) {
    ShiftedFit fit = ReadScaleBytes(block, k);
    for (int i = 0; i < 256; ++i) fit.codes[i] = static_cast<uint8_t>(FourBits(block.codes, i, k));
    return fit;
  }
};

struct IQ5_KS_R4 {
  using Format = IQ5_KS;
  static constexpr int kRows = 4;
  uint8_t scales[32];
  uint8_t low[512];
  uint8_t high[128];

  static ShiftedFit Read(const IQ5_KS_R4& block, int k) {
    ShiftedFit fit = ReadScaleBytes(block, k);
    for (int i = 0; i < 256; ++i) {
      const int high = OneBit(block.high, i, k, kOrderOfIq5K);
      fit.codes[i] = static_cast<uint8_t>(FourBits(block.low, i, k) | high << 4);
    }
    return fit;
  }
};

// ---- Grids -------------------------------------------------------------------------------------

// Signs and scales of IQ2_XXS and IQ3_XXS: four bytes for 32 values, each with a bit of the scale
// and the parities of seven signs.
template <class Block>
GridFit ReadSignsAndScales(const Block& block, int k) {
  GridFit fit{};
  fit.d = block.d[k];
  for (int g = 0; g < 8; ++g) {
    for (int v = 0; v < 4; ++v) {
      const int byte = block.signs[16 * g + 4 * k + v];
      fit.scales[g] = static_cast<uint8_t>(fit.scales[g] | (byte & 1) << v);
      fit.signs[4 * g + v] = SignsOfParities(byte >> 1);
    }
  }
  return fit;
}

struct IQ2_XXS_R4 {
  using Format = IQ2_XXS;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  uint8_t signs[128];
  uint8_t points[128];

  static GridFit Read(const IQ2_XXS_R4& block, int k) {
    GridFit fit = ReadSignsAndScales(block, k);
    for (int v = 0; v < 32; ++v) fit.points[v] = block.points[v / 4 * 16 + 4 * k + v % 4];
    return fit;
  }
};

struct IQ3_XXS_R4 {
  using Format = IQ3_XXS;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  uint8_t signs[128];
  uint8_t points[256];

  static GridFit Read(const IQ3_XXS_R4& block, int k) {
    GridFit fit = ReadSignsAndScales(block, k);
    for (int v = 0; v < 64; ++v) fit.points[v] = block.points[v / 8 * 32 + 8 * k + v % 8];
    return fit;
  }
};

struct IQ2_XS_R4 {
  using Format = IQ2_XS;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  PackedU16 vectors[128];
  uint8_t scales[32];

  static GridFit Read(const IQ2_XS_R4& block, int k) {
    GridFit fit{};
    fit.d = block.d[k];
    for (int g = 0; g < 16; ++g) {
      fit.scales[g] = static_cast<uint8_t>(block.scales[g / 2 * 4 + k] >> (g % 2 * 4) & 15);
    }
    for (int v = 0; v < 32; ++v) {
      const uint32_t vector = block.vectors[v / 4 * 16 + 4 * k + v % 4].value();
      fit.points[v] = static_cast<uint16_t>(vector & 511);
      fit.signs[v] = SignsOfParities(static_cast<int>(vector >> 9));
    }
    return fit;
  }
};

struct IQ2_S_R4 {
  using Format = IQ2_S;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  uint8_t points[128];
  uint8_t points_high[32];
  uint8_t signs[128];
  uint8_t scales[32];

  static GridFit Read(const IQ2_S_R4& block, int k) {
    GridFit fit{};
    fit.d = block.d[k];
    for (int g = 0; g < 16; ++g) {
      fit.scales[g] = static_cast<uint8_t>(block.scales[g / 2 * 4 + k] >> (g % 2 * 4) & 15);
    }
    for (int v = 0; v < 32; ++v) {
      const int at = v / 4 * 16 + 4 * k + v % 4;
      const int high = block.points_high[v / 4 * 4 + k] >> (v % 4 * 2) & 3;
      fit.points[v] = static_cast<uint16_t>(block.points[at] | high << 8);
      fit.signs[v] = block.signs[at];
    }
    return fit;
  }
};

struct IQ3_S_R4 {
  using Format = IQ3_S;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  uint8_t points[256];
  uint8_t points_high[32];
  uint8_t signs[128];
  uint8_t scales[16];

  static GridFit Read(const IQ3_S_R4& block, int k) {
    GridFit fit{};
    fit.d = block.d[k];
    for (int g = 0; g < 8; ++g) {
      fit.scales[g] = static_cast<uint8_t>(BitPlane<4, 16>::Get(block.scales, 4 * g + k));
    }
    for (int v = 0; v < 64; ++v) {
      const int low = block.points[v / 8 * 32 + v % 4 * 8 + v % 8 / 4 * 4 + k];
      const int high = block.points_high[v / 8 * 4 + k] >> (v % 8) & 1;
      fit.points[v] = static_cast<uint16_t>(low | high << 8);
    }
    for (int i = 0; i < 256; ++i) {  // bit i % 8 of byte i / 8 of the plain signs
      const int j = i % 32;
      const int sign = block.signs[i / 32 * 16 + 4 * k + j % 4] >> (j / 4) & 1;
      fit.signs[i / 8] = static_cast<uint8_t>(fit.signs[i / 8] | sign << (i % 8));
    }
    return fit;
  }
};

}  // namespace kvant::quant::interleaved
