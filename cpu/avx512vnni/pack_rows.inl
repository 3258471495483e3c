// Panels packed straight from the bytes of 16 rows, for formats whose codes lie in planes of bits
// (BitPlane of quant/block.h). Included inside the target region of matmul.cpp, after
// unpack_pieces.inl and the panels, which define
//
//   PanelLines<Codes>(v, panel)   where vector `v` of eight blocks of a panel goes:
//     BeginGroup(pair, half, scales) -> Group   group `half` of 16 columns of pair `pair`
//     Put(group, line, codes)       four columns of 16 rows, a row a lane; line 0 to 7 of the pair
//
// Sixteen bytes of each row, transposed, are four vectors whose lane r holds four bytes of row r.

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

// The halves that begin the eight blocks of 16 rows, as scales; with kMinimum, at which byte of a
// block those of its minimum are.
template <class Block, int kMinimum = 0>
struct HalfScales {
  HalvesOfRows<sizeof(Block)> factors;

  explicit HalfScales(RowBlocks rows) : factors(rows, 0) {}
  RowScales Of(int64_t pair, int64_t /*half*/) const { return {factors.Floats(pair)}; }
};
template <class Block, int kMinimum>
  requires(kMinimum > 0)
struct HalfScales<Block, kMinimum> {
  HalvesOfRows<sizeof(Block)> factors, minima;

  explicit HalfScales(RowBlocks rows) : factors(rows, 0), minima(rows, kMinimum) {}
  RowScales Of(int64_t pair, int64_t /*half*/) const {
    return {factors.Floats(pair), Negate(minima.Floats(pair))};
  }
};

// What OfRow::OfRow(block) gives for 16 rows, lane by lane: lanes[l] has lane l of row r in lane r.
template <class OfRow>
struct LanesOfRows {
  __m512 lanes[16];

  explicit LanesOfRows(RowBlocks rows) {
    __m512i v[16];
    for (int r = 0; r < 16; ++r) v[r] = _mm512_castps_si512(OfRow::OfRow(rows[r]));
    TransposeLanes(v);
    for (int l = 0; l < 16; ++l) lanes[l] = _mm512_castsi512_ps(v[l]);
  }
};

// Sixteen numbers as floats times a factor.
[[gnu::always_inline]] inline __m512 TimesHalf(__m512i numbers, quant::PackedHalf factor) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(numbers), BroadcastHalf(factor));
}

// The planes of a format without high bits.
struct NoPlane {};

template <class Plane>
struct PlaneShape {
  static constexpr int kWidth = std::bit_width(static_cast<uint32_t>(Plane::kMask));
  static constexpr int kFields = 8 / kWidth;  // of a byte
  // From a group of 16 columns to the next whose fields are in the same bytes.
  static constexpr int kRunGroups = Plane::kRunFields / kFields / 16;
};

// A format's rows, of which it says
//
//   Format, Codes  the struct in quant/; a RowCodes
//   Low, kLow      the plane of the low bits of codes and at which byte of a block it begins
//   High, kHigh    the same of the bits above these, if there are any
//   Scales         Scales(rows), Of(pair, half) -> RowScales
//   CodesOf(bits)  codes, where these are not the bits
template <class Rows>
struct PackedRows {
  using High = NoPlane;
  static constexpr int64_t kHigh = 0;
  static __m512i CodesOf(__m512i bits) { return bits; }

  // 16 rows of a block of 256 columns to vector `v` of eight blocks of a panel.
  static void Pack(RowBlocks rows, int64_t v, __m512* panel) {
    using Low = typename Rows::Low;
    using Block = typename Rows::Format::Block;
    constexpr bool kHasHigh = !std::is_same_v<typename Rows::High, NoPlane>;
    using Outer = std::conditional_t<kHasHigh, typename Rows::High, Low>;
    constexpr int kBlocks = 256 / Rows::Format::kBlockValues;
    constexpr int kGroups = 16 / kBlocks;
    constexpr int kFields = PlaneShape<Outer>::kFields, kRun = PlaneShape<Outer>::kRunGroups;
    const typename Rows::Scales scales(rows);
    const PanelLines<typename Rows::Codes> lines(v, panel);
    for (int block = 0; block < kBlocks; ++block) {
      const int64_t at = block * static_cast<int64_t>(sizeof(Block));
      for (int chunk = 0; chunk < kGroups / kFields; ++chunk) {
        __m512i high[4];
        if constexpr (kHasHigh) LoadFours(rows, at + Rows::kHigh + 16 * chunk, high);
        const int first = chunk / kRun * kFields * kRun + chunk % kRun;
        for (int group = first; group < first + kFields * kRun; group += kRun) {
          if (Low::Shift(16 * group) != 0) continue;
          PackGroups(rows, at, high, {block * kGroups, group}, scales, lines);
        }
      }
    }
  }

 private:
  struct Place {
    int first;  // group of the block
    int group;  // in the block
  };

  // The groups whose low bits are in the same 16 bytes as those of `place`.
  template <class Scales, class Lines>
  [[gnu::always_inline]] static void PackGroups(RowBlocks rows, int64_t at, const __m512i* high,
                                                Place place, const Scales& scales,
                                                const Lines& lines) {
    using Low = typename Rows::Low;
    using Shape = PlaneShape<Low>;
    __m512i low[4];
    LoadFours(rows, at + Rows::kLow + Low::Byte(16 * place.group), low);
#pragma GCC unroll 4
    for (int f = 0; f < Shape::kFields; ++f) {
      const int in_block = place.group + f * Shape::kRunGroups;
      const int group = place.first + in_block;
      const auto to = lines.BeginGroup(group / 2, group % 2, scales.Of(group / 2, group % 2));
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        __m512i bits = low[k];
        if (f > 0) bits = _mm512_srlv_epi32(bits, _mm512_set1_epi32(Shape::kWidth * f));
        if constexpr (Shape::kFields > 1)
          bits = _mm512_and_si512(bits, _mm512_set1_epi8(Low::kMask));
        if constexpr (!std::is_same_v<typename Rows::High, NoPlane>) {
          bits = AddHigh(bits, high[k], in_block);
        }
        lines.Put(to, 4 * (group % 2) + k, Rows::CodesOf(bits));
      }
    }
  }

  // The high bits of a group above its low ones.
  [[gnu::always_inline]] static __m512i AddHigh(__m512i low, __m512i high, int group) {
    using High = typename Rows::High;
    constexpr int kLowBits = PlaneShape<typename Rows::Low>::kWidth;
    const __m512i rotate = _mm512_set1_epi32(kLowBits - High::Shift(16 * group));
    return OrMasked(low, _mm512_rolv_epi32(high, rotate), High::kMask << kLowBits);
  }
};
