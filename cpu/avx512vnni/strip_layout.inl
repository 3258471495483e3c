// Strips of weights for products with fewer than 64 tokens: how they lie in memory, and how they
// are packed. Included inside the target region of matmul.cpp, after panel_layout.inl.
//
// A strip is up to kStripColumns columns of 32 rows. As in a panel, a lane belongs to a row, and
// there is one line of codes for every four columns. An item is as many columns as share a scale,
// 32 or 16:
//
//   codes    [columns / 4][2] lines, code + 128 as unsigned bytes
//   scales   [2] vectors of floats
//   offsets  [2] where the format has them
//
// Sums have the bits that blocks of int8_blocks.inl give: there a lane of an accumulator sums every
// sixteenth item, and Sum() adds the lanes. So every sixteenth item of a strip lies behind the one
// before, a track, and each of the 16 tracks has a sum of its own.

// Columns of a strip: eight items of each track, or sixteen. It stays in the second-level cache.
constexpr int64_t kStripColumns = 4096;

// The track that belongs to a lane of an accumulator.
template <LaneOrder kOrder, int kScaleValues>
constexpr int TrackOfLane(unsigned lane) {
  if constexpr (kScaleValues == 16) {  // GroupOfLane()
    return static_cast<int>(lane % 4 * 4 + lane / 4);
  }
  // PairOfUnitLane()
  constexpr int kPairs[] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
  constexpr int kGroups[] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
  return kOrder == LaneOrder::kPairs ? kPairs[lane] : kGroups[lane];
}

// What a strip's kernel must know about a format.
template <LaneOrder kOrder, bool kOffsets, int kScaleColumns>
struct StripTraits {
  static constexpr bool kHasOffsets = kOffsets;
  static constexpr int kScaleValues = kScaleColumns;
  static constexpr int kCodes = kScaleValues / 4 * kPanelVectors;
  static constexpr int kItem = kCodes + (kHasOffsets ? 2 : 1) * kPanelVectors;  // vectors
  static constexpr int64_t kItems = kStripColumns / (16 * kScaleValues);        // of a track
  static constexpr int64_t kTrack = kItems * kItem;                             // vectors

  // The tracks of lanes 0, 8, 4, 12, 2 ...: a lane's number has the bits of its place backwards.
  static constexpr std::array<int8_t, 16> kTracks = [] {
    std::array<int8_t, 16> tracks = {};
    for (unsigned i = 0; i < 16; ++i) {
      const unsigned lane = (i & 1) << 3 | (i & 2) << 1 | (i & 4) >> 1 | (i & 8) >> 3;
      tracks[i] = static_cast<int8_t>(TrackOfLane<kOrder, kScaleValues>(lane));
    }
    return tracks;
  }();
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
    if constexpr (Traits::kScaleValues == 32) {
      first_ += block / 2 * Traits::kItem + block % 2 * 8 * Traits::kTrack;
    } else {
      first_ += block * Traits::kItem;
    }
  }

  [[gnu::always_inline]] Group BeginGroup(int pair, int half, const RowScales& rows) const {
    const bool two = Traits::kScaleValues == 16;
    const Group group = first_ + (two ? 2 * pair + half : pair) * Traits::kTrack;
    if (!two && half == 1) return group;
    __m512* out = reinterpret_cast<__m512*>(group + Traits::kCodes);
    out[0] = rows.scales;
    if constexpr (Traits::kHasOffsets) out[kPanelVectors] = rows.offsets;
    return group;
  }
  [[gnu::always_inline]] void Put(Group group, int line, __m512i codes) const {
    if constexpr (Traits::kScaleValues == 16) line %= 4;
    const __m512i rest = _mm512_set1_epi8(static_cast<char>(128 - Codes::kBias));
    group[line * kPanelVectors] = Codes::kBias == 128 ? codes : _mm512_add_epi8(codes, rest);
  }

 private:
  __m512i* first_;
};
