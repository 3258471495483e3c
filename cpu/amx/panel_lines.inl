// How codes of 16 rows become lines of a tile, for cpu/generic/pack_rows.inl. Included inside
// the target region of matmul.cpp, after bf16_panel.inl.
//
// A code becomes a float in one permutation: put into the mantissa of a power of two, the unit, it
// is unit + code. One FMA gives (unit + code) * scale - (unit + bias) * scale, which is exact where
// the last product has at most 24 bits: scales of a half have 11 bits, unit + bias 5 (Q4_0) or 9
// (Q8_0, IQ4_NL), or 18 and 3 (Q6_K). Where it has more, or there are offsets, unit + bias is
// subtracted first.

// Columns 2 * kPair and 2 * kPair + 1 of four of eight rows, from row 8 * kHalf on: unit + code.
template <class Codes, int kPair, int kHalf>
[[gnu::always_inline]] inline __m512 CodesInMantissas(__m512i fours) {
  constexpr int kByte = Codes::kBits == 7 ? 2 : 1;  // of a float
  constexpr auto kFrom = [](int lane) {
    return (32 * kHalf + lane / 2 * 4 + 2 * kPair + lane % 2) << (8 * kByte);
  };
  const __m512i bytes = _mm512_setr_epi32(
      kFrom(0), kFrom(1), kFrom(2), kFrom(3), kFrom(4), kFrom(5), kFrom(6), kFrom(7), kFrom(8),
      kFrom(9), kFrom(10), kFrom(11), kFrom(12), kFrom(13), kFrom(14), kFrom(15));
  const __m512i unit = _mm512_castps_si512(_mm512_set1_ps(Codes::kBits == 7 ? 0x1p7f : 0x1p15f));
  return _mm512_castsi512_ps(
      _mm512_mask_permutexvar_epi8(unit, 0x1111111111111111ULL << kByte, bytes, fours));
}

// Where tile `v` of eight blocks of a panel goes.
template <class Codes>
class PanelLines {
  static constexpr bool kSubtractFirst = !Codes::kShortScales;
  static constexpr float kBegin = (Codes::kBits == 7 ? 0x1p7f : 0x1p15f) + Codes::kBias;
  static_assert(kSubtractFirst || !Codes::kHasOffsets);

 public:
  struct Group {
    GroupScales scales;
    __m512i* lines;
  };

  PanelLines(int64_t v, __m512* panel)
      : lines_(reinterpret_cast<__m512i*>(panel) + v * kTileLines) {}

  [[gnu::always_inline]] Group BeginGroup(int pair, int /*half*/, const RowScales& rows) const {
    const __m512 offsets =
        kSubtractFirst ? rows.offsets : _mm512_mul_ps(rows.scales, _mm512_set1_ps(kBegin));
    return {{PairedRows(rows.scales), PairedRows(offsets)},
            lines_ + pair * kPanelVectors * kTileLines};
  }
  [[gnu::always_inline]] void Put(const Group& group, int line, __m512i codes) const {
    group.lines[2 * line] = Line<0>(group.scales, codes);
    group.lines[2 * line + 1] = Line<1>(group.scales, codes);
  }

 private:
  template <int kPair>
  [[gnu::always_inline]] static __m512i Line(const GroupScales& group, __m512i codes) {
    const __m512 low = Values<kPair, 0>(codes, group.scales.low, group.offsets.low);
    const __m512 high = Values<kPair, 1>(codes, group.scales.high, group.offsets.high);
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
  }
  template <int kPair, int kHalf>
  [[gnu::always_inline]] static __m512 Values(__m512i codes, __m512 scales, __m512 offsets) {
    __m512 floats = CodesInMantissas<Codes, kPair, kHalf>(codes);
    if constexpr (kSubtractFirst) floats = _mm512_sub_ps(floats, _mm512_set1_ps(kBegin));
    return _mm512_fmsub_ps(floats, scales, offsets);
  }

  __m512i* lines_;
};

template <class Unpacker>
using PanelLinesOf = PanelLines<typename Unpacker::Rows::Codes>;
