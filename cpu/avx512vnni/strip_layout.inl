// Strips of AVX-512 VNNI: how they lie in memory. Included inside the target region of matmul.cpp,
// after panel_layout.inl and before strips.inl and cpu/generic/matmul_strips.inl.
//
// An item is as many columns as share a scale, 32 or 16:
//
//   codes    [columns / 4][2] lines, code + 128 as unsigned bytes
//   scales   [2] vectors of floats
//   offsets  [2] where the format has them

// Columns of a strip: eight items of each track, or sixteen. It stays in the second-level cache.
constexpr int64_t kStripColumns = 4096;

// The track that belongs to a lane of an accumulator.
template <LaneOrder kOrder, int kScaleValues>
constexpr int TrackOf(unsigned lane) {
  if constexpr (kScaleValues == 16) {  // GroupOfLane()
    return static_cast<int>(lane % 4 * 4 + lane / 4);
  }
  // PairOfUnitLane()
  constexpr int kPairs[] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
  constexpr int kGroups[] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
  return kOrder == LaneOrder::kPairs ? kPairs[lane] : kGroups[lane];
}

// The traits of a format that a strip's kernel needs.
template <LaneOrder kOrder, bool kOffsets, int kScaleColumns>
struct StripTraits {
  static constexpr bool kHasOffsets = kOffsets;
  static constexpr int kItemColumns = kScaleColumns;
  static constexpr int kCodes = kItemColumns / 4 * kPanelVectors;
  static constexpr int kItem = kCodes + (kHasOffsets ? 2 : 1) * kPanelVectors;  // vectors
  static constexpr int64_t kItems = kStripColumns / (16 * kItemColumns);        // of a track
  static constexpr int64_t kTrack = kItems * kItem;                             // vectors

  static constexpr int TrackOfLane(unsigned lane) { return TrackOf<kOrder, kItemColumns>(lane); }
};

template <class Unpacker>
using StripTraitsOf =
    StripTraits<Unpacker::Codes::kOrder, Unpacker::Codes::kHasOffsets, Unpacker::kScaleValues>;

// Room for a strip, in vectors.
constexpr int64_t kStripVectors = 16 * StripTraits<LaneOrder::kGroups, true, 16>::kTrack;

// Where vector `v` of block `block` of 256 columns of a strip goes: one of Lines (pack_rows.inl).
template <class Traits, class Codes>
class StripLines {
 public:
  using Group = __m512i*;

  StripLines(__m512* strip, int64_t block, int64_t v)
      : first_(reinterpret_cast<__m512i*>(strip) + v) {
    if constexpr (Traits::kItemColumns == 32) {
      first_ += block / 2 * Traits::kItem + block % 2 * 8 * Traits::kTrack;
    } else {
      first_ += block * Traits::kItem;
    }
  }

  [[gnu::always_inline]] Group BeginGroup(int pair, int half, const RowScales& rows) const {
    const bool two = Traits::kItemColumns == 16;
    const Group group = first_ + (two ? 2 * pair + half : pair) * Traits::kTrack;
    if (!two && half == 1) return group;
    __m512* out = reinterpret_cast<__m512*>(group + Traits::kCodes);
    out[0] = rows.scales;
    if constexpr (Traits::kHasOffsets) out[kPanelVectors] = rows.offsets;
    return group;
  }
  [[gnu::always_inline]] void Put(Group group, int line, __m512i codes) const {
    if constexpr (Traits::kItemColumns == 16) line %= 4;
    const __m512i rest = _mm512_set1_epi8(static_cast<char>(128 - Codes::kBias));
    group[line * kPanelVectors] = Codes::kBias == 128 ? codes : _mm512_add_epi8(codes, rest);
  }

 private:
  __m512i* first_;
};

template <class Unpacker>
constexpr bool kStripped = true;

template <class Rows, class... Others>
constexpr bool kOneOf = (std::is_same_v<Rows, Others> || ...);

// The number of tokens from which on strips take less time than blocks. Strips are written to the
// second-level cache and read again for every tile, so the number depends on the CPU. It is
// measured type by type on Emerald Rapids for Intel's CPUs, and on Zen 5 for AMD's. On Zen 5
// formats that are packed from the bytes of rows have lower numbers with a scale for 32 values, and
// the lowest where the 32 values are a block of their own whose codes have four low bits.
template <class Unpacker>
int64_t StripTokens() {
  if constexpr (!requires { typename Unpacker::Rows; }) {
    return IsAmd() ? 28 : 40;
  } else {
    using Rows = typename Unpacker::Rows;
    if (IsAmd()) {
      if (Unpacker::kScaleValues == 16) return 17;
      if constexpr (requires { Rows::kLowBits; }) {
        if (Rows::kLowBits == 4) return 5;
      }
      return 9;
    }
    if (kOneOf<Rows, RowsOfQ8_0>) return 25;
    if (kOneOf<Rows, RowsOfQ2_K, RowsOfQ6_K>) return 21;
    return kOneOf<Rows, RowsOfQ4_0, RowsOfIQ4_NL, RowsOfQ4_K> ? 18 : 17;
  }
}
