// Panels of weights for products with 64 and more tokens, as AVX-512 VNNI multiplies them: how they
// lie in memory, and how they are packed. Included inside the target region of matmul.cpp, after
// panel_lanes.inl.
//
// A lane belongs to one output row, so sums never cross lanes. For every four columns there is one
// line of codes per 16 rows.
//
// Block of 32 columns and 32 rows, kBlock vectors:
//   codes    [8][2] lines, code + 128 as unsigned bytes
//   for each scale of a row (one, or two of 16 columns each):
//     scales   [2] vectors of floats
//     origins  [2] kDotOrigin * scale, exactly
//     offsets  [2] where the format has them

// Rows of a vector, vectors of rows.
constexpr int64_t kPanelLanes = 16;
constexpr int kPanelVectors = 2;
constexpr bool kWidePanels = false;

// The traits of a format that a panel's kernel needs: a row has one scale for 32 or for 16 columns.
template <bool kOffsets, int kScaleValues>
struct PanelTraits {
  static constexpr bool kHasOffsets = kOffsets;
  static constexpr int kScales = 32 / kScaleValues;
  // Vectors of a block: before the first scale, from one scale to the next, altogether.
  static constexpr int kCodes = 8 * kPanelVectors;
  static constexpr int kScaleStride = (kHasOffsets ? 3 : 2) * kPanelVectors;
  static constexpr int kBlock = kCodes + kScales * kScaleStride;
};

template <class Unpacker>
using PanelTraitsOf = PanelTraits<Unpacker::Codes::kHasOffsets, Unpacker::kScaleValues>;

constexpr int kPanelBlockMax = PanelTraits<true, 16>::kBlock;

// kDotOrigin times the scales. The product is exact because a scale's last two bits are zero and
// because it is at most 2^104. No format has scales of more than 22 bits, only MXFP4 has larger
// finite ones, and PanelScales makes sure: with an infinite origin even a block of zeros would give
// NaN. A NaN stays one.
inline __m512 PanelOrigins(__m512 scales) {
  return _mm512_mul_ps(scales, _mm512_set1_ps(kDotOrigin));
}

inline __m512 PanelScales(__m512i bits) {
  const __m512 scales = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(~3)));
  const __m512 at_most = _mm512_min_ps(_mm512_set1_ps(0x1p104f), scales);
  return _mm512_max_ps(_mm512_set1_ps(-0x1p104f), at_most);
}

// Where vector `v` of eight blocks of a panel goes: pack_rows.inl.
template <class Codes>
class PanelLines {
  using Traits = PanelTraits<Codes::kHasOffsets, Codes::kScaleValues>;

 public:
  using Group = __m512i*;

  PanelLines(int64_t v, __m512* panel) : vectors_(reinterpret_cast<__m512i*>(panel) + v) {}

  [[gnu::always_inline]] Group BeginGroup(int pair, int half, const RowScales& rows) const {
    const Group block = vectors_ + pair * Traits::kBlock;
    if (half >= Traits::kScales) return block;
    __m512* out = reinterpret_cast<__m512*>(block + Traits::kCodes + half * Traits::kScaleStride);
    const __m512 scales = PanelScales(_mm512_castps_si512(rows.scales));
    out[0] = scales;
    out[kPanelVectors] = PanelOrigins(scales);
    if constexpr (Traits::kHasOffsets) out[2 * kPanelVectors] = rows.offsets;
    return block;
  }
  [[gnu::always_inline]] void Put(Group block, int line, __m512i codes) const {
    const __m512i rest = _mm512_set1_epi8(static_cast<char>(128 - Codes::kBias));
    block[line * kPanelVectors] = Codes::kBias == 128 ? codes : _mm512_add_epi8(codes, rest);
  }

 private:
  __m512i* vectors_;
};

template <class Unpacker>
using PanelLinesOf = PanelLines<typename Unpacker::Rows::Codes>;

// The traits of the codes of blocks that lines need.
template <class Codes, int kScaleValuesOfCodes>
struct BlockCodes {
  static constexpr int kBias = Codes::kBias;
  static constexpr bool kHasOffsets = Codes::kHasOffsets;
  static constexpr int kScaleValues = kScaleValuesOfCodes;
};

// One block of 256 columns of 16 rows, brought into the order of int8_blocks.inl where lane 4q + v
// is group 4v + q, to lines of a panel or strip.
template <class Codes, class Lines>
[[gnu::always_inline]] inline void PackLanes(WeightBlock* rows, const Lines& lines) {
  for (int r = 0; r < 16; ++r) PutInGroupOrder<Codes>(rows[r]);
  __m512i scales[16], offsets[16], codes[16];
  for (int r = 0; r < 16; ++r) scales[r] = _mm512_castps_si512(rows[r].scales);
  TransposeLanes(scales);
  if constexpr (Codes::kHasOffsets) {
    for (int r = 0; r < 16; ++r) offsets[r] = _mm512_castps_si512(rows[r].offsets);
    TransposeLanes(offsets);
  }
  typename Lines::Group groups[16];
  for (int lane = 0; lane < 16; ++lane) {
    const int group = lane % 4 * 4 + lane / 4;
    RowScales of_rows = {_mm512_castsi512_ps(scales[lane])};
    if constexpr (Codes::kHasOffsets) of_rows.offsets = _mm512_castsi512_ps(offsets[lane]);
    groups[lane] = lines.BeginGroup(group / 2, group % 2, of_rows);
  }
  for (int s = 0; s < 4; ++s) {
    for (int r = 0; r < 16; ++r) codes[r] = (&rows[r].codes0)[s];
    TransposeLanes(codes);
    for (int lane = 0; lane < 16; ++lane) {
      const int group = lane % 4 * 4 + lane / 4;
      lines.Put(groups[lane], group % 2 * 4 + s, codes[lane]);
    }
  }
}

template <class Traits, class Codes>
void PackBlock(WeightBlock* rows, int64_t v, __m512* blocks) {
  using Lines = PanelLines<BlockCodes<Codes, 32 / Traits::kScales>>;
  PackLanes<Codes>(rows, Lines(v, blocks));
}
