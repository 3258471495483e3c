// Panels packed straight from the bytes of 16 rows, for formats whose codes lie in planes of bits
// (BitPlane of quant/block.h). Included inside the target region of matmul.cpp, after
// unpack_pieces.inl and the panels, which define
//
//   PanelLines<Codes>(v, panel)   where vector `v` of eight blocks of a panel goes, one of Lines:
//     BeginGroup(pair, half, scales) -> Group   group `half` of 16 columns of pair `pair`
//     Put(group, line, codes)       four columns of 16 rows, a row a lane; line 0 to 7 of the pair
//
// Sixteen bytes of each row, transposed, are four vectors whose lane r holds four bytes of row r.

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

// Four bytes from byte kBytes of `fours` on, 1 to 3, the last of them from `next`, lane by lane.
template <int kBytes>
[[gnu::always_inline]] inline __m512i FoursFrom(__m512i fours, __m512i next) {
  constexpr uint64_t kUpper = kBytes == 1   ? 0x8888888888888888
                              : kBytes == 2 ? 0xcccccccccccccccc
                                            : 0xeeeeeeeeeeeeeeee;
  return _mm512_mask_blend_epi8(kUpper, _mm512_ror_epi32(fours, 8 * kBytes),
                                _mm512_ror_epi32(next, 8 * kBytes));
}

// What a format's rows have in common: PackTo(rows, lines) for the lines of a panel.
template <class Rows>
struct PanelRowsOf {
  // 16 rows of a block of 256 columns to vector `v` of eight blocks of a panel.
  static void Pack(RowBlocks rows, int64_t v, __m512* panel) {
    Rows::PackTo(rows, PanelLines<typename Rows::Codes>(v, panel));
  }
};

// Lane r: bytes `at` to `at` + 3 of row r.
[[gnu::always_inline]] inline __m512i LoadWords(RowBlocks rows, int64_t at) {
  __m512i quarters[4];  // as in LoadFours, in all lanes of a quarter
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const auto load = [&](int q) __attribute__((always_inline)) {
      int word;
      std::memcpy(&word, rows[4 * q + j] + at, sizeof(word));
      return _mm_cvtsi32_si128(word);
    };
    __m512i v = _mm512_castsi128_si512(_mm_broadcastd_epi32(load(0)));
    v = _mm512_mask_broadcastd_epi32(v, 0x00f0, load(1));
    v = _mm512_mask_broadcastd_epi32(v, 0x0f00, load(2));
    quarters[j] = _mm512_mask_broadcastd_epi32(v, 0xf000, load(3));
  }
  const __m512i first = _mm512_mask_blend_epi32(0xaaaa, quarters[0], quarters[1]);
  const __m512i second = _mm512_mask_blend_epi32(0xaaaa, quarters[2], quarters[3]);
  return _mm512_mask_blend_epi32(0xcccc, first, second);
}

// The halves in the lower or the upper parts of words, as floats.
[[gnu::always_inline]] inline __m512 LowerHalves(__m512i words) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
}
[[gnu::always_inline]] inline __m512 UpperHalves(__m512i words) {
  return LowerHalves(_mm512_srli_epi32(words, 16));
}

// The small numbers that a block of 256 columns has for its scales, of 16 rows: number i of row r
// is byte i % 4 of lane r of fours[i / 4].
struct RowNumbers {
  __m512i fours[4];

  __m512i Unsigned(int i) const {
    return _mm512_and_si512(_mm512_srlv_epi32(fours[i / 4], _mm512_set1_epi32(i % 4 * 8)),
                            _mm512_set1_epi32(255));
  }
  __m512i Signed(int i) const {
    return _mm512_srai_epi32(_mm512_sllv_epi32(fours[i / 4], _mm512_set1_epi32(24 - i % 4 * 8)),
                             24);
  }
};

[[gnu::always_inline]] inline __m512i AndBytes(__m512i bytes, int mask) {
  return _mm512_and_si512(bytes, _mm512_set1_epi8(static_cast<char>(mask)));
}
[[gnu::always_inline]] inline __m512 Times(__m512i numbers, __m512 factors) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(numbers), factors);
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

// The planes of a format's rows.
template <class Rows>
struct RowPlanes {
  static constexpr bool kHasHigh = !std::is_same_v<typename Rows::High, NoPlane>;
  using Outer = std::conditional_t<kHasHigh, typename Rows::High, typename Rows::Low>;
  static constexpr int kFields = PlaneShape<Outer>::kFields;
  static constexpr int kRun = PlaneShape<Outer>::kRunGroups;
  static_assert(Rows::Format::kBlockValues == 256);
};

// A format's rows, of which it says
//
//   Format, Codes  the struct in quant/; a RowCodes
//   Low, kLow      the plane of the low bits of codes and at which byte of a block it begins
//   High, kHigh    the same of the bits above these, if there are any
//   Scales         Scales(rows), Of(pair, half) -> RowScales
//   CodesOf(bits)  codes, where these are not the bits
template <class Rows>
struct PackedRows : PanelRowsOf<Rows> {
  static constexpr int64_t kStripTokens = 9;  // measured on Zen 5, as all of them
  using High = NoPlane;
  static constexpr int64_t kHigh = 0;
  static __m512i CodesOf(__m512i bits) { return bits; }

  // 16 rows of a block of 256 columns.
  template <class Lines>
  static void PackTo(RowBlocks rows, const Lines& lines) {
    const typename Rows::Scales scales(rows);
    constexpr int kChunks = 16 / RowPlanes<Rows>::kFields;
    PackChunks(rows, scales, lines, std::make_integer_sequence<int, kChunks>());
  }

 private:
  // Each chunk: 16 bytes of the outer plane, a field of kFields groups. All numbers of groups are
  // constants, so that places and shifts are.
  template <class Scales, class Lines, int... kChunks>
  [[gnu::always_inline]] static void PackChunks(RowBlocks rows, const Scales& scales,
                                                const Lines& lines,
                                                std::integer_sequence<int, kChunks...> /*chunks*/) {
    (PackChunk<kChunks>(rows, scales, lines), ...);
  }
  template <int kChunk, class Scales, class Lines>
  [[gnu::always_inline]] static void PackChunk(RowBlocks rows, const Scales& scales,
                                               const Lines& lines) {
    constexpr int kFields = RowPlanes<Rows>::kFields, kRun = RowPlanes<Rows>::kRun;
    __m512i high[4];
    if constexpr (RowPlanes<Rows>::kHasHigh) LoadFours(rows, Rows::kHigh + 16 * kChunk, high);
    PackGroups<kChunk / kRun * kFields * kRun + kChunk % kRun, kFields>(rows, high, scales, lines);
  }

  // kCount groups from kGroup on, RowPlanes::kRun apart.
  template <int kGroup, int kCount, class Scales, class Lines>
  [[gnu::always_inline]] static void PackGroups(RowBlocks rows, const __m512i (&high)[4],
                                                const Scales& scales, const Lines& lines) {
    if constexpr (kCount > 0) {
      if constexpr (Rows::Low::Shift(16 * kGroup) == 0) {
        PackSameBytes<kGroup>(rows, high, scales, lines);
      }
      PackGroups<kGroup + RowPlanes<Rows>::kRun, kCount - 1>(rows, high, scales, lines);
    }
  }

  // The groups whose low bits are in the same 16 bytes as those of kFirst.
  template <int kFirst, class Scales, class Lines>
  [[gnu::always_inline]] static void PackSameBytes(RowBlocks rows, const __m512i (&high)[4],
                                                   const Scales& scales, const Lines& lines) {
    using Low = typename Rows::Low;
    using Shape = PlaneShape<Low>;
    __m512i low[4];
    LoadFours(rows, Rows::kLow + Low::Byte(16 * kFirst), low);
#pragma GCC unroll 4
    for (int f = 0; f < Shape::kFields; ++f) {
      const int group = kFirst + f * Shape::kRunGroups;
      const auto to = lines.BeginGroup(group / 2, group % 2, scales.Of(group / 2, group % 2));
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        __m512i bits = low[k];
        if (f > 0) bits = _mm512_srlv_epi32(bits, _mm512_set1_epi32(Shape::kWidth * f));
        if constexpr (Shape::kFields > 1)
          bits = _mm512_and_si512(bits, _mm512_set1_epi8(Low::kMask));
        if constexpr (RowPlanes<Rows>::kHasHigh) {
          bits = AddHigh(bits, high[k], group);
        }
        lines.Put(to, 4 * (group % 2) + k, Rows::CodesOf(bits));
      }
    }
  }

  // The high bits of a group above its low ones.
  [[gnu::always_inline]] static __m512i AddHigh(__m512i low, __m512i high, int group) {
    using Plane = typename Rows::High;
    constexpr int kLowBits = PlaneShape<typename Rows::Low>::kWidth;
    const __m512i rotate = _mm512_set1_epi32(kLowBits - Plane::Shift(16 * group));
    return OrMasked(low, _mm512_rolv_epi32(high, rotate), Plane::kMask << kLowBits);
  }
};
