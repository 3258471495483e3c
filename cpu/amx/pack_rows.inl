// The most used formats packed into tiles straight from the bytes of 16 rows. Included inside the
// target region of matmul.cpp, after bf16_panel.inl and unpackers.inl.
//
// Sixteen bytes of each row, transposed, are four vectors whose lane r holds four bytes of row r.
// A code becomes a float in one permutation: put into the mantissa of a power of two, the unit, it
// is unit + code. One FMA gives (unit + code) * scale - (unit + bias) * scale, which is exact,
// since the last product has at most 24 bits: scales have 11 bits, unit + bias 5 (Q4_0) or 9 (Q8_0,
// IQ4_NL), or 18 and 3 (Q6_K). Where that does not hold, or there are offsets, unit + bias is
// subtracted first.

// The bytes of a block of 256 columns in each of 16 rows.
using RowBlocks = const std::byte* const*;

// Lane r of out[k]: bytes 4k to 4k + 3 from byte `at` of row r on.
[[gnu::always_inline]] inline void LoadFours(RowBlocks rows, int64_t at, __m512i (&out)[4]) {
  __m512i quarters[4];  // quarter q of quarters[j] is of row 4q + j
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const auto load = [&](int q) __attribute__((always_inline)) {
      return LoadBytes16(rows[4 * q + j] + at);
    };
    __m512i v = _mm512_castsi128_si512(load(0));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load(1));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load(2));
    quarters[j] = _mm512_mask_broadcast_i32x4(v, 0xf000, load(3));
  }
  const __m512i low01 = _mm512_unpacklo_epi32(quarters[0], quarters[1]);
  const __m512i high01 = _mm512_unpackhi_epi32(quarters[0], quarters[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(quarters[2], quarters[3]);
  const __m512i high23 = _mm512_unpackhi_epi32(quarters[2], quarters[3]);
  out[0] = _mm512_unpacklo_epi64(low01, low23);
  out[1] = _mm512_unpackhi_epi64(low01, low23);
  out[2] = _mm512_unpacklo_epi64(high01, high23);
  out[3] = _mm512_unpackhi_epi64(high01, high23);
}

// How the codes of a format lie in floats, and whether what they begin with is subtracted first.
enum class CodeFloats { kInOneStep, kSubtractedFirst };

// Codes of kBits bits (7 or 8): code - kBias times the scale, less an offset.
template <int kBits, int kBias, CodeFloats kHow = CodeFloats::kInOneStep>
struct MantissaCodes {
  static constexpr bool kSubtract = kHow == CodeFloats::kSubtractedFirst;
  static constexpr int kByte = kBits == 7 ? 2 : 1;  // of a float
  static constexpr float kUnit = kBits == 7 ? 0x1p7f : 0x1p15f;
  static constexpr float kBegin = kUnit + kBias;

  // kUnit + code of codes 2 * kPair, 2 * kPair + 1 of rows 8 * kHalf to 8 * kHalf + 7.
  template <int kPair, int kHalf>
  [[gnu::always_inline]] static __m512 Floats(__m512i fours) {
    constexpr auto kFrom = [](int lane) {
      return (32 * kHalf + lane / 2 * 4 + 2 * kPair + lane % 2) << (8 * kByte);
    };
    const __m512i bytes = _mm512_setr_epi32(
        kFrom(0), kFrom(1), kFrom(2), kFrom(3), kFrom(4), kFrom(5), kFrom(6), kFrom(7), kFrom(8),
        kFrom(9), kFrom(10), kFrom(11), kFrom(12), kFrom(13), kFrom(14), kFrom(15));
    const __m512i unit = _mm512_castps_si512(_mm512_set1_ps(kUnit));
    const __m512 floats = _mm512_castsi512_ps(
        _mm512_mask_permutexvar_epi8(unit, 0x1111111111111111ULL << kByte, bytes, fours));
    return kSubtract ? _mm512_sub_ps(floats, _mm512_set1_ps(kBegin)) : floats;
  }

  // What the floats of a group of columns of 16 rows are multiplied with, and what is subtracted.
  [[gnu::always_inline]] static GroupScales Scales(__m512 scales) {
    const __m512 begin = _mm512_set1_ps(kSubtract ? 0 : kBegin);
    return {PairedRows(scales), PairedRows(_mm512_mul_ps(scales, begin))};
  }
  [[gnu::always_inline]] static GroupScales Scales(__m512 scales, __m512 offsets) {
    static_assert(kSubtract);
    return {PairedRows(scales), PairedRows(offsets)};
  }
};

// The two lines of four columns.
template <class Codes>
[[gnu::always_inline]] inline void PutFours(__m512i fours, const GroupScales& group,
                                            __m512i* line) {
  const auto put = [&]<int kPair>(std::integral_constant<int, kPair>)
      __attribute__((always_inline)) {
    const __m512 low = _mm512_fmsub_ps(Codes::template Floats<kPair, 0>(fours), group.scales.low,
                                       group.offsets.low);
    const __m512 high = _mm512_fmsub_ps(Codes::template Floats<kPair, 1>(fours), group.scales.high,
                                        group.offsets.high);
    line[kPair] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  };
  put(std::integral_constant<int, 0>());
  put(std::integral_constant<int, 1>());
}

[[gnu::always_inline]] inline __m512i LowHalves(__m512i bytes) {
  return _mm512_and_si512(bytes, _mm512_set1_epi8(0x0f));
}

// Two bytes of the eight blocks of kStride bytes of 16 rows.
template <int kStride>
struct HalvesOfRows {
  alignas(64) uint16_t bits[8][16];

  [[gnu::always_inline]] HalvesOfRows(RowBlocks rows, int64_t at) {
    for (int r = 0; r < 16; ++r) {
#pragma GCC unroll 8
      for (int b = 0; b < 8; ++b) {
        uint16_t half;
        std::memcpy(&half, rows[r] + at + b * kStride, sizeof(half));
        // Or GCC collects them in vectors, which takes the port of the permutations.
        asm("" : "+r"(half));
        bits[b][r] = half;
      }
    }
  }
  __m256i Bits(int64_t block) const {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(bits[block]));
  }
  __m512 Floats(int64_t block) const { return _mm512_cvtph_ps(Bits(block)); }
};

// A format's Pack writes 256 columns of 16 rows to eight blocks of a panel; `lines` are those of
// the rows' tile in the first.
constexpr int64_t kBlockLines = kPanelVectors * kTileLines;

// For each of 16 lanes that Packer::RowScales gives for a row, those of 16 rows.
template <class Packer>
struct ScalesOfRows {
  __m512 groups[16];

  explicit ScalesOfRows(RowBlocks rows) {
    __m512i lanes[16];
    for (int r = 0; r < 16; ++r) lanes[r] = _mm512_castps_si512(Packer::RowScales(rows[r]));
    TransposeLanes(lanes);
    for (int g = 0; g < 16; ++g) groups[g] = _mm512_castsi512_ps(lanes[g]);
  }
};

// 4-bit codes, of which 16 bytes hold the first 16 columns of 32 in their low halves and the others
// in their high ones. A format says where these bytes are, what codes are for the bytes' low halves
// (whatever their high ones hold), and gives the scales.
template <class Format>
struct PackRowsNibbles {
  static void Pack(RowBlocks rows, __m512i* lines) {
    using Codes = typename Format::Codes;
    const typename Format::Scales scales(rows);
    for (int64_t b = 0; b < 8; ++b, lines += kBlockLines) {
      const GroupScales group = scales.Of(b);
      __m512i fours[4];
      LoadFours(rows, b * Format::kStride + Format::kCodes, fours);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        PutFours<Codes>(Format::CodesOf(fours[k]), group, lines + 2 * k);
        PutFours<Codes>(Format::CodesOf(_mm512_srli_epi32(fours[k], 4)), group, lines + 8 + 2 * k);
      }
    }
  }
};

struct NibblesQ4_0 {
  using Codes = MantissaCodes<7, 8>;
  static constexpr int64_t kStride = sizeof(quant::Q4_0::Block), kCodes = 2;

  static __m512i CodesOf(__m512i nibbles) { return LowHalves(nibbles); }

  struct Scales : HalvesOfRows<kStride> {
    explicit Scales(RowBlocks rows) : HalvesOfRows<kStride>(rows, 0) {}
    GroupScales Of(int64_t block) const { return Codes::Scales(Floats(block)); }
  };
};
using PackRowsQ4_0 = PackRowsNibbles<NibblesQ4_0>;

struct NibblesQ4_1 {
  using Codes = MantissaCodes<7, 0, CodeFloats::kSubtractedFirst>;
  static constexpr int64_t kStride = sizeof(quant::Q4_1::Block), kCodes = 4;

  static __m512i CodesOf(__m512i nibbles) { return LowHalves(nibbles); }

  struct Scales {
    HalvesOfRows<kStride> factors, minima;
    explicit Scales(RowBlocks rows)
        : factors(rows, 0), minima(rows, offsetof(quant::Q4_1::Block, m)) {}
    GroupScales Of(int64_t block) const {
      return Codes::Scales(factors.Floats(block), Negate(minima.Floats(block)));
    }
  };
};
using PackRowsQ4_1 = PackRowsNibbles<NibblesQ4_1>;

// The level + 128 of each low half.
[[gnu::always_inline]] inline __m512i Iq4Codes(__m512i nibbles) {
  return _mm512_shuffle_epi8(_mm512_load_si512(kIq4Bytes.bytes), LowHalves(nibbles));
}

struct NibblesIQ4_NL {
  using Codes = MantissaCodes<8, 128>;
  static constexpr int64_t kStride = sizeof(quant::IQ4_NL::Block), kCodes = 2;

  static __m512i CodesOf(__m512i nibbles) { return Iq4Codes(nibbles); }

  struct Scales : HalvesOfRows<kStride> {
    explicit Scales(RowBlocks rows) : HalvesOfRows<kStride>(rows, 0) {}
    GroupScales Of(int64_t block) const { return Codes::Scales(Floats(block)); }
  };
};
using PackRowsIQ4_NL = PackRowsNibbles<NibblesIQ4_NL>;

struct NibblesIQ4_XS {
  using Codes = MantissaCodes<8, 128, CodeFloats::kSubtractedFirst>;
  using Block = quant::IQ4_XS::Block;
  static constexpr int64_t kStride = 16, kCodes = offsetof(Block, codes);

  static __m512i CodesOf(__m512i nibbles) { return Iq4Codes(nibbles); }

  static __m512 RowScales(const std::byte* row) {
    const auto& block = *reinterpret_cast<const Block*>(row);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(PackedScales(block))),
                         BroadcastHalf(block.d));
  }
  struct Scales : ScalesOfRows<NibblesIQ4_XS> {
    explicit Scales(RowBlocks rows) : ScalesOfRows(rows) {}
    GroupScales Of(int64_t block) const { return Codes::Scales(groups[block]); }
  };
};
using PackRowsIQ4_XS = PackRowsNibbles<NibblesIQ4_XS>;

struct NibblesMXFP4 {
  using Codes = MantissaCodes<7, E2M1Bytes::kBias, CodeFloats::kSubtractedFirst>;
  static constexpr int64_t kStride = sizeof(quant::MXFP4::Block), kCodes = 1;

  static __m512i CodesOf(__m512i nibbles) {
    return _mm512_shuffle_epi8(_mm512_load_si512(kE2M1Bytes.bytes), LowHalves(nibbles));
  }

  struct Scales : HalvesOfRows<kStride> {
    explicit Scales(RowBlocks rows) : HalvesOfRows<kStride>(rows, 0) {}
    GroupScales Of(int64_t block) const {
      const __m512i exponents =
          _mm512_and_si512(_mm512_cvtepu16_epi32(Bits(block)), _mm512_set1_epi32(0xff));
      return Codes::Scales(ScalesOfExponents(exponents));
    }
  };
};
using PackRowsMXFP4 = PackRowsNibbles<NibblesMXFP4>;

struct PackRowsQ8_0 {
  using Codes = MantissaCodes<8, 128>;

  static void Pack(RowBlocks rows, __m512i* lines) {
    constexpr int kStride = sizeof(quant::Q8_0::Block);
    const HalvesOfRows<kStride> halves(rows, 0);
    for (int64_t b = 0; b < 8; ++b, lines += kBlockLines) {
      const GroupScales scales = Codes::Scales(halves.Floats(b));
      for (int64_t h = 0; h < 2; ++h) {
        __m512i fours[4];
        LoadFours(rows, b * kStride + 2 + 16 * h, fours);
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
          const __m512i codes =
              _mm512_xor_si512(fours[k], _mm512_set1_epi8(static_cast<char>(0x80)));
          PutFours<Codes>(codes, scales, lines + 8 * h + 2 * k);
        }
      }
    }
  }
};

// Q4_K and Q5_K: run c of 32 bytes holds pair 2c of groups in its low and pair 2c + 1 in its high
// halves; bit p of byte b of the 32 bytes of high bits belongs to column b of pair p.
template <class Block, bool kFifthBits>
struct PackRowsPairs {
  using Codes = MantissaCodes<7, 0, CodeFloats::kSubtractedFirst>;

  // Scales in even lanes, minima in odd ones.
  static __m512 RowScales(const std::byte* row) {
    WeightBlock block;
    UnpackPairs(*reinterpret_cast<const Block*>(row), block);
    return block.offsets;
  }

  static __m512i FifthBit(__m512i codes, __m512i bits, int pair) {
    const __m512i bit = pair < 4 ? _mm512_sllv_epi32(bits, _mm512_set1_epi32(4 - pair))
                                 : _mm512_srlv_epi32(bits, _mm512_set1_epi32(pair - 4));
    return OrMasked(codes, bit, 0x10);
  }

  static void Pack(RowBlocks rows, __m512i* lines) {
    const ScalesOfRows<PackRowsPairs> scales(rows);
    const auto put = [&](__m512i codes, int pair, int64_t k, const GroupScales& group)
        __attribute__((always_inline)) {
      PutFours<Codes>(codes, group, lines + pair * kBlockLines + 2 * k);
    };
    for (int h = 0; h < 2; ++h) {
      __m512i bits[4];
      if constexpr (kFifthBits) LoadFours(rows, offsetof(Block, high) + 16 * h, bits);
      for (int c = 0; c < 4; ++c) {
        __m512i fours[4];
        LoadFours(rows, kCodes + 32 * c + 16 * h, fours);
        for (int half = 0; half < 2; ++half) {
          const int pair = 2 * c + half;
          const GroupScales group =
              Codes::Scales(scales.groups[2 * pair], scales.groups[2 * pair + 1]);
#pragma GCC unroll 4
          for (int k = 0; k < 4; ++k) {
            __m512i codes = LowHalves(_mm512_srlv_epi32(fours[k], _mm512_set1_epi32(4 * half)));
            if constexpr (kFifthBits) codes = FifthBit(codes, bits[k], pair);
            put(codes, pair, 4 * h + k, group);
          }
        }
      }
    }
  }

  static constexpr int64_t kCodes = [] {
    if constexpr (kFifthBits)
      return offsetof(Block, low);
    else
      return offsetof(Block, codes);
  }();
};
using PackRowsQ4_K = PackRowsPairs<quant::Q4_K::Block, false>;
using PackRowsQ5_K = PackRowsPairs<quant::Q5_K::Block, true>;

// Of each half of 128 columns, 64 bytes hold low nibbles, those of columns l and 32 + l in the low
// halves of bytes l and 32 + l, those of 64 + l and 96 + l in the high ones; bits 2n and 2n + 1 of
// byte l of the high bits belong to column 32n + l.
struct PackRowsQ6_K {
  using Codes = MantissaCodes<7, 32>;
  using Block = quant::Q6_K::Block;

  static __m512 RowScales(const std::byte* row) {
    const auto& block = *reinterpret_cast<const Block*>(row);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(LoadBytes16(block.scales))),
                         BroadcastHalf(block.d));
  }

  static void Pack(RowBlocks rows, __m512i* lines) {
    const ScalesOfRows<PackRowsQ6_K> scales(rows);
    for (int half = 0; half < 2; ++half) {
      for (int j = 0; j < 2; ++j) {
        __m512i high[4];
        LoadFours(rows, offsetof(Block, high) + 32 * half + 16 * j, high);
        for (int run = 0; run < 2; ++run) {
          __m512i low[4];
          LoadFours(rows, offsetof(Block, low) + 64 * half + 32 * run + 16 * j, low);
          for (int upper = 0; upper < 2; ++upper) {
            const int n = 2 * upper + run;
            const int64_t block = 4 * half + n;
            const GroupScales group = Codes::Scales(scales.groups[2 * block + j]);
            const __m512i nibble = _mm512_set1_epi32(4 * upper);
            const __m512i rotate = _mm512_set1_epi32(4 - 2 * n);
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) {
              const __m512i codes = OrMasked(LowHalves(_mm512_srlv_epi32(low[k], nibble)),
                                             _mm512_rolv_epi32(high[k], rotate), 0x30);
              PutFours<Codes>(codes, group, lines + block * kBlockLines + 8 * j + 2 * k);
            }
          }
        }
      }
    }
  }
};

// 16 rows of a block of 256 columns to tile `v` of eight blocks of a panel.
template <class Packer>
void PackRows(RowBlocks rows, int64_t v, __m512* panel) {
  Packer::Pack(rows, reinterpret_cast<__m512i*>(panel) + v * kTileLines);
}
