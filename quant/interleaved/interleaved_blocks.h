// The blocks of several interleaved rows of quant/interleaved/interleaved.cpp, as they lie in a
// file: codes with scales of their own. Each struct has Read(block, row), which finds the fields of
// one row; the plain format's Pack makes a block of them.
#pragma once

#include <cstdint>

#include "quant/format_list.h"
#include "quant/search/level_fit.h"
#include "quant/search/scale_search.h"

namespace kvant::quant::interleaved {

// ---- Codes -------------------------------------------------------------------------------------
// The codes of 32 values of a row lie four neighbours side by side, then four of the next row; so
// the four bytes of row k begin at 4 k. A byte holds codes of values 4, 8 or 16 apart.

// 4 rows: 16 bytes hold the values i and i + 8, i of 0, 16, 4, 20 plus 0 .. 3.
inline int FourBits(const uint8_t* bytes, int i, int k) {
  const int j = i % 32;
  const int piece = (j >> 4 & 1) + (j >> 2 & 1) * 2;
  return bytes[i / 32 * 64 + piece * 16 + 4 * k + j % 4] >> (j >> 3 & 1) * 4 & 15;
}
// 4 rows: 16 bytes hold the values i, i + 4, i + 8 and i + 12, of each half of the 32.
inline int TwoBits(const uint8_t* bytes, int i, int k) {
  const int j = i % 32;
  return bytes[i / 32 * 32 + j / 16 * 16 + 4 * k + j % 4] >> (j >> 2 & 3) * 2 & 3;
}
// A byte for values 4 apart of all 32; `order` gives the bit of value 4 n.
inline int OneBit(const uint8_t* bytes, int i, int k, const uint8_t (&order)[8]) {
  const int j = i % 32;
  return bytes[i / 32 * 16 + 4 * k + j % 4] >> order[j / 4] & 1;
}
inline constexpr uint8_t kAscending[8] = {0, 1, 2, 3, 4, 5, 6, 7};
inline constexpr uint8_t kOrderOfQ5K[8] = {0, 2, 1, 3, 4, 6, 5, 7};
inline constexpr uint8_t kOrderOfIq5K[8] = {0, 4, 1, 5, 2, 6, 3, 7};
// 8 rows of 32 values: plain bytes, four of each row at a time.
inline int ByteOfEight(const uint8_t* bytes, int b, int k) {
  return bytes[b / 4 * 32 + 4 * k + b % 4];
}

// Six bits of group g, of 4 rows.
inline int SixBits(const uint8_t* low, const uint8_t* high, int place) {
  return BitPlane<4, 32>::Get(low, place) | BitPlane<2, 16>::Get(high, place) << 4;
}

// Seven signs, of which ik_llama.cpp keeps the running parities.
inline uint8_t SignsOfParities(int parities) {
  return static_cast<uint8_t>((parities ^ parities << 1) & 127);
}

// ---- Blocks of 32 ------------------------------------------------------------------------------

struct Q4_0_R8 {
  using Format = Q4_0;
  static constexpr int kRows = 8;
  PackedHalf d[8];
  uint8_t codes[128];

  static BlockFit Read(const Q4_0_R8& block, int k) {
    BlockFit fit{block.d[k], {}, {}};
    for (int i = 0; i < 32; ++i) {
      const int byte = ByteOfEight(block.codes, i % 16, k);
      fit.codes[i] = static_cast<int8_t>((byte >> (i / 16 * 4) & 15) - 8);
    }
    return fit;
  }
};

struct MXFP4_R8 {
  using Format = MXFP4;
  static constexpr int kRows = 8;
  uint8_t scales[8];
  uint8_t codes[128];

  static Mxfp4Fit Read(const MXFP4_R8& block, int k) {
    Mxfp4Fit fit{block.scales[k], {}};
    for (int i = 0; i < 32; ++i) {
      const int byte = ByteOfEight(block.codes, i % 16, k);
      fit.codes[i] = static_cast<uint8_t>(byte >> (i / 16 * 4) & 15);
    }
    return fit;
  }
};

struct Q8_0_R8 {
  using Format = Q8_0;
  static constexpr int kRows = 8;
  PackedHalf d[8];
  uint8_t codes[256];

  static BlockFit Read(const Q8_0_R8& block, int k) {
    BlockFit fit{block.d[k], {}, {}};
    for (int i = 0; i < 32; ++i) {
      fit.codes[i] = static_cast<int8_t>(ByteOfEight(block.codes, i, k));
    }
    return fit;
  }
};

struct Q5_0_R4 {
  using Format = Q5_0;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  uint8_t high[16];
  uint8_t low[64];

  static BlockFit Read(const Q5_0_R4& block, int k) {
    constexpr uint8_t kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    BlockFit fit{block.d[k], {}, {}};
    for (int i = 0; i < 32; ++i) {
      const int code = FourBits(block.low, i, k) | OneBit(block.high, i, k, kOrder) << 4;
      fit.codes[i] = static_cast<int8_t>(code - 16);
    }
    return fit;
  }
};

struct Q6_0_R4 {
  using Format = Q6_0;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  uint8_t high[32];
  uint8_t low[64];

  static BlockFit Read(const Q6_0_R4& block, int k) {
    BlockFit fit{block.d[k], {}, {}};
    for (int i = 0; i < 32; ++i) {
      const int byte = block.high[i / 16 * 16 + 4 * k + i % 4];
      const int high = byte >> ((i >> 2 & 1) * 2 + (i >> 3 & 1) * 4) & 3;
      fit.codes[i] = static_cast<int8_t>((FourBits(block.low, i, k) | high << 4) - 32);
    }
    return fit;
  }
};

struct IQ4_NL_R4 {
  using Format = IQ4_NL;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  uint8_t codes[64];

  static LevelFit Read(const IQ4_NL_R4& block, int k) {
    LevelFit fit{block.d[k], {}};
    for (int i = 0; i < 32; ++i) fit.codes[i] = static_cast<uint8_t>(FourBits(block.codes, i, k));
    return fit;
  }
};

// ---- Superblocks -------------------------------------------------------------------------------

struct Q2_K_R4 {
  using Format = Q2_K;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  PackedHalf dmin[4];
  uint8_t scales[64];
  uint8_t codes[256];

  static SuperblockFit Read(const Q2_K_R4& block, int k) {
    SuperblockFit fit{block.d[k], block.dmin[k], {}, {}, {}};
    for (int g = 0; g < 16; ++g) {
      fit.scales[g] = static_cast<int8_t>(block.scales[4 * g + k] & 15);
      fit.offsets[g] = static_cast<int8_t>(block.scales[4 * g + k] >> 4);
    }
    for (int i = 0; i < 256; ++i) fit.codes[i] = static_cast<int8_t>(TwoBits(block.codes, i, k));
    return fit;
  }
};

struct Q3_K_R4 {
  using Format = Q3_K;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  uint8_t scales_high[16];
  uint8_t scales_low[32];
  uint8_t high[128];
  uint8_t low[256];

  static SuperblockFit Read(const Q3_K_R4& block, int k) {
    SuperblockFit fit{block.d[k], {}, {}, {}, {}};
    for (int g = 0; g < 16; ++g) {
      fit.scales[g] =
          static_cast<int8_t>(SixBits(block.scales_low, block.scales_high, 4 * g + k) - 32);
    }
    for (int i = 0; i < 256; ++i) {
      const int code = TwoBits(block.low, i, k) | OneBit(block.high, i, k, kAscending) << 2;
      fit.codes[i] = static_cast<int8_t>(code - 4);
    }
    return fit;
  }
};

// The scales and offsets of Q4_K and Q5_K.
template <class Block>
SuperblockFit ReadScalesAndOffsets(const Block& block, int k) {
  SuperblockFit fit{block.d[k], block.dmin[k], {}, {}, {}};
  for (int g = 0; g < 8; ++g) {
    const int low = block.scales_low[4 * g + k];
    const int high = BitPlane<4, 16>::Get(block.scales_high, 4 * g + k);
    fit.scales[g] = static_cast<int8_t>((low & 15) | (high & 3) << 4);
    fit.offsets[g] = static_cast<int8_t>(low >> 4 | high >> 2 << 4);
  }
  return fit;
}

struct Q4_K_R4 {
  using Format = Q4_K;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  PackedHalf dmin[4];
  uint8_t scales_high[16];
  uint8_t scales_low[32];
  uint8_t codes[512];

  static SuperblockFit Read(const Q4_K_R4& block, int k) {
    SuperblockFit fit = ReadScalesAndOffsets(block, k);
    for (int i = 0; i < 256; ++i) fit.codes[i] = static_cast<int8_t>(FourBits(block.codes, i, k));
    return fit;
  }
};

struct Q5_K_R4 {
  using Format = Q5_K;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  PackedHalf dmin[4];
  uint8_t scales_high[16];
  uint8_t scales_low[32];
  uint8_t high[128];
  uint8_t low[512];

  static SuperblockFit Read(const Q5_K_R4& block, int k) {
    SuperblockFit fit = ReadScalesAndOffsets(block, k);
    for (int i = 0; i < 256; ++i) {
      const int high = OneBit(block.high, i, k, kOrderOfQ5K);
      fit.codes[i] = static_cast<int8_t>(FourBits(block.low, i, k) | high << 4);
    }
    return fit;
  }
};

struct Q6_K_R4 {
  using Format = Q6_K;
  static constexpr int kRows = 4;
  PackedHalf d[4];
  int8_t scales[64];
  uint8_t high[256];
  uint8_t low[512];

  static SuperblockFit Read(const Q6_K_R4& block, int k) {
    SuperblockFit fit{block.d[k], {}, {}, {}, {}};
    for (int g = 0; g < 16; ++g) fit.scales[g] = block.scales[4 * g + k];
    for (int i = 0; i < 256; ++i) {
      const int j = i % 32;
      const int byte = block.high[i / 32 * 32 + j / 16 * 16 + 4 * k + j % 4];
      const int high = byte >> ((j >> 2 & 1) * 4 + (j >> 3 & 1) * 2) & 3;
      fit.codes[i] = static_cast<int8_t>((FourBits(block.low, i, k) | high << 4) - 32);
    }
    return fit;
  }
};

struct IQ4_XS_R8 {
  using Format = IQ4_XS;
  static constexpr int kRows = 8;
  PackedHalf d[8];
  uint8_t scales_high[16];
  uint8_t scales_low[32];
  uint8_t codes[1024];

  static Iq4XsFit Read(const IQ4_XS_R8& block, int k) {
    Iq4XsFit fit{block.d[k], {}, {}};
    for (int g = 0; g < 8; ++g) {
      fit.scales[g] =
          static_cast<int8_t>(SixBits(block.scales_low, block.scales_high, 8 * g + k) - 32);
    }
    for (int i = 0; i < 256; ++i) {
      const int byte = block.codes[i / 8 * 32 + 4 * k + i % 4];
      fit.codes[i] = static_cast<uint8_t>(byte >> (i >> 2 & 1) * 4 & 15);
    }
    return fit;
  }
};

}  // namespace kvant::quant::interleaved
