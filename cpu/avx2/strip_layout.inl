// Strips of AVX2 and AVX-VNNI: how they lie in memory. Included inside the target region of
// matmul.cpp, after the panels and strip_operands.inl, and before strip_tile.inl and
// cpu/generic/matmul_strips.inl.
//
// An item is as many columns as a lane of WeightBlock takes at once: 32 in LaneOrder::kPairs, 16 in
// LaneOrder::kGroups, also where two groups share a scale.
//
//   codes    [columns / 4][2] lines, as in a panel, but never in 16 bits
//   scales   [2] vectors of floats
//   offsets  [2] where the format has them

// Columns of a strip: 8 items of each track, or 16. It stays in the second-level cache.
constexpr int64_t kStripColumns = 2048;

// The traits of a format that a strip's kernel needs.
template <class Codes>
struct StripTraits : StripProducts<Codes, Codes::kOrder == LaneOrder::kPairs ? 8 : 4> {
  static constexpr int kItemColumns = Codes::kOrder == LaneOrder::kPairs ? 32 : 16;
  static constexpr bool kHasOffsets = Codes::kHasOffsets;
  static constexpr int kCodes = kItemColumns / 4 * kPanelVectors;
  static constexpr int kBlock = kCodes + (kHasOffsets ? 2 : 1) * kPanelVectors;
  static constexpr int kItem = kBlock;
  static constexpr int64_t kTrack = kStripColumns / (kPanelLanes * kItemColumns) * kItem;
  // From the activations of an item of a track to those of the next, in bytes.
  static constexpr int kCodeStep = kPanelLanes * kItemColumns;
  static constexpr int kScaleStep = kPanelLanes * kItemColumns / 32 * 4;
  static constexpr int kSumStep = kPanelLanes * 4;

  static constexpr int TrackOfLane(unsigned lane) { return PairOfLane(static_cast<int>(lane)); }
};

template <class Unpacker>
using StripTraitsOf = StripTraits<typename Unpacker::Codes>;

// Room for a strip, in vectors.
constexpr int64_t kStripVectors =
    kPanelLanes * StripTraits<CodeTraits<0, 3, true, LaneOrder::kGroups>>::kTrack;

// Where vector `v` of block `block` of 256 columns of a strip goes: cpu/generic/pack_rows.inl.
template <class Traits, class Codes>
class StripLines {
  static constexpr bool kGroups = Traits::kItemColumns == 16;

 public:
  using Group = __m256i*;

  StripLines(__m256* strip, int64_t block, int64_t v)
      : first_(reinterpret_cast<__m256i*>(strip) + (kGroups ? 2 : 1) * block * Traits::kItem + v) {}

  [[gnu::always_inline]] Group BeginGroup(int pair, int half, const RowScales& rows) const {
    const int item = kGroups ? 2 * pair + half : pair;
    const Group to =
        first_ + item % kPanelLanes * Traits::kTrack + item / kPanelLanes * Traits::kItem;
    if (!kGroups && half == 1) return to;
    __m256* out = reinterpret_cast<__m256*>(to + Traits::kCodes);
    out[0] = _mm256_mul_ps(rows.scales, _mm256_set1_ps(Traits::kScaleFactor));
    if constexpr (Traits::kHasOffsets) out[kPanelVectors] = rows.offsets;
    return to;
  }
  [[gnu::always_inline]] void Put(Group to, int line, __m256i codes) const {
    to[(kGroups ? line % 4 : line) * kPanelVectors] = Traits::template Stored<Codes>(codes);
  }

 private:
  __m256i* first_;
};

// Formats whose single tokens are multiplied as points of a grid, which round otherwise, have no
// strips.
template <class Unpacker>
constexpr bool kStripped =
    kHasStrips<typename Unpacker::Codes> && !requires { typename Unpacker::FewTokens; };

// The number of tokens from which on strips take less time than blocks. The numbers differ for
// formats that are packed from the bytes of rows and have a scale for 32 values, for other formats
// that are packed from bytes, and for formats that are unpacked row by row. They are measured on
// Zen 5 for AMD's CPUs, on Emerald Rapids for others. There formats with codes of eight bits have
// strips later, and formats with scales for 16 values have none where products take VPMADDUBSW.
template <class Unpacker>
int64_t StripTokens() {
  if constexpr (!requires { typename Unpacker::Rows; }) return kStreamedTokens + 1;
  if (Unpacker::Codes::kOrder != LaneOrder::kPairs) {
    return kWideSums || IsAmd() ? 17 : kStreamedTokens + 1;
  }
  if (IsAmd()) return 9;
  if constexpr (requires { Unpacker::Rows::kLowBits; }) {
    if (Unpacker::Rows::kLowBits == 8) return 21;
  }
  return 10;
}
