// Products of panels of quantized weights with 64 and more tokens in AMX. Included inside the
// target region of matmul.cpp, after tile.inl and panel_operands.inl.
//
// Weights and activations are rounded to bfloat16, which is several times as exact as the 8-bit
// codes that other instruction sets give activations. A scale needs no operation after the product
// then: sums stay in their tiles over all columns of a panel.
//
// The left-hand operand of a tile product is 16 tokens by 32 columns as they lie in the records.
// The right-hand one is a tile of the panel, 32 columns by 16 rows: line p holds columns 2p and
// 2p + 1 of each row, side by side.
//
// Block of 32 columns and 32 rows, kBlock vectors:
//   weights  [2][16] lines of the two tiles of rows

constexpr int64_t kPanelLanes = 16;
constexpr int kPanelVectors = 2;
constexpr int kPanelTokens = 16;
constexpr bool kWidePanels = false;
constexpr int64_t kPassTokensAim = 512;
constexpr int64_t kPassPanels = 16;
constexpr int64_t kTileLines = 16;
using TileTokens = TokenRecords<kPanelTokens>;

// The traits of a format that packing of a panel needs: a row has one scale for 32 or for 16
// columns.
template <bool kOffsets, int kScaleValues>
struct PanelTraits {
  static constexpr bool kHasOffsets = kOffsets;
  static constexpr int kScales = 32 / kScaleValues;
  static constexpr int kBlock = kPanelVectors * kTileLines;
};

template <class Unpacker>
using PanelTraitsOf = PanelTraits<Unpacker::Codes::kHasOffsets, Unpacker::kScaleValues>;

constexpr int kPanelBlockMax = PanelTraits<true, 16>::kBlock;

// A value of each of the 16 rows of a tile, in the order of the tile's dwords: rows 0 to 7 twice
// each, then rows 8 to 15.
struct PairedRows {
  __m512 low, high;

  PairedRows() = default;
  explicit PairedRows(__m512 rows)
      : low(_mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                                  rows)),
        high(_mm512_permutexvar_ps(
            _mm512_setr_epi32(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15), rows)) {}
};

// The scales and offsets of a group of 16 columns: a weight is code * 2^24 * scale - offset.
struct GroupScales {
  PairedRows scales, offsets;
};

// The signed codes of bytes 2 * kPair and 2 * kPair + 1 of eight rows, from row 8 * kHalf on, times
// 2^24, because they are made signed by lying in the highest byte.
template <int kPair, int kHalf>
[[gnu::always_inline]] inline __m512 PairOfCodes(__m512i lines) {
  constexpr auto kByte = [](int lane) {
    return (32 * kHalf + lane / 2 * 4 + 2 * kPair + lane % 2) << 24;
  };
  const __m512i bytes = _mm512_setr_epi32(
      kByte(0), kByte(1), kByte(2), kByte(3), kByte(4), kByte(5), kByte(6), kByte(7), kByte(8),
      kByte(9), kByte(10), kByte(11), kByte(12), kByte(13), kByte(14), kByte(15));
  return _mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(0x8888888888888888, bytes, lines));
}

// One line of a tile from the codes of four columns of 16 rows: columns 2 * kPair, 2 * kPair + 1.
template <bool kOffsets, int kPair>
[[gnu::always_inline]] inline __m512i LineOfTile(__m512i lines, const GroupScales& group) {
  const __m512 low = PairOfCodes<kPair, 0>(lines);
  const __m512 high = PairOfCodes<kPair, 1>(lines);
  if constexpr (kOffsets) {
    return reinterpret_cast<__m512i>(
        _mm512_cvtne2ps_pbh(_mm512_fmsub_ps(high, group.scales.high, group.offsets.high),
                            _mm512_fmsub_ps(low, group.scales.low, group.offsets.low)));
  }
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_mul_ps(high, group.scales.high),
                                                       _mm512_mul_ps(low, group.scales.low)));
}

// The rows in the order of int8_blocks.inl where lane 4q + v is group 4v + q, and what the lanes'
// groups become.
template <class Traits, class Codes>
void PrepareGroups(WeightBlock* rows, GroupScales* groups) {
  for (int r = 0; r < 16; ++r) PutInGroupOrder<Codes>(rows[r]);
  __m512i scales[16];
  __m512i offsets[16];
  for (int r = 0; r < 16; ++r) scales[r] = _mm512_castps_si512(rows[r].scales);
  TransposeLanes(scales);
  if constexpr (Traits::kHasOffsets) {
    for (int r = 0; r < 16; ++r) offsets[r] = _mm512_castps_si512(rows[r].offsets);
    TransposeLanes(offsets);
  }
  for (int64_t lane = 0; lane < 16; ++lane) {
    // The scale and the offset of 32 columns are those of the first of their groups.
    const int64_t group = lane % 4 * 4 + lane / 4;
    const int64_t of = Traits::kScales == 1 && group % 2 == 1 ? lane - 4 : lane;
    const __m512 scale = _mm512_mul_ps(_mm512_castsi512_ps(scales[of]), _mm512_set1_ps(0x1p-24f));
    const __m512i offset = Traits::kHasOffsets ? offsets[of] : _mm512_setzero_si512();
    groups[lane] = {PairedRows(scale), PairedRows(_mm512_castsi512_ps(offset))};
  }
}

// Columns 4s to 4s + 3 of all groups, to tile `v` of eight blocks of a panel.
template <class Traits, class Codes>
void PackLines(const WeightBlock* rows, const GroupScales* groups, int64_t s, int64_t v,
               __m512* blocks) {
  __m512i* panel = reinterpret_cast<__m512i*>(blocks) + v * kTileLines;
  const __m512i bias = _mm512_set1_epi8(static_cast<char>(Codes::kBias));
  __m512i lanes[16];
  for (int r = 0; r < 16; ++r) lanes[r] = (&rows[r].codes0)[s];
  TransposeLanes(lanes);
#pragma GCC unroll 16
  for (int64_t lane = 0; lane < 16; ++lane) {
    const int64_t group = lane % 4 * 4 + lane / 4;
    __m512i* line = panel + group / 2 * Traits::kBlock + group % 2 * 8 + 2 * s;
    const __m512i codes = Codes::kBias == 0 ? lanes[lane] : _mm512_sub_epi8(lanes[lane], bias);
    line[0] = LineOfTile<Traits::kHasOffsets, 0>(codes, groups[lane]);
    line[1] = LineOfTile<Traits::kHasOffsets, 1>(codes, groups[lane]);
  }
}

// One block of 256 columns of 16 rows, to tile `v` of eight blocks of a panel.
template <class Traits, class Codes>
void PackBlock(WeightBlock* rows, int64_t v, __m512* blocks) {
  GroupScales groups[kPanelLanes];
  PrepareGroups<Traits, Codes>(rows, groups);
  for (int64_t s = 0; s < 4; ++s) PackLines<Traits, Codes>(rows, groups, s, v, blocks);
}

// Tiles by number: sums of two tiles of rows, one of tokens, one of weights. The fewer are in use,
// the faster are loads beside products when another hardware thread shares the core.
constexpr int kSums = 0, kTokens = 2, kWeights = 3;

inline TileConfig ConfigOfPanels() {
  TileConfig config;
  for (int tile = 0; tile <= kWeights; ++tile) {
    config.rows[tile] = kTileLines;
    config.row_bytes[tile] = 64;
  }
  return config;
}

// The activations of a tile's tokens, `stride` bytes apart.
struct TileHalves {
  const std::byte* first;
  int64_t stride;

  // Where records stand in for tokens that are missing, the activations are copied to `room`.
  TileHalves(const TileTokens& tokens, int64_t at, int64_t bytes, std::byte* room)
      : first(tokens.records[0] + at), stride(tokens.records[1] - tokens.records[0]) {
    if (tokens.records[kPanelTokens - 1] == tokens.records[0] + (kPanelTokens - 1) * stride) return;
    for (int64_t t = 0; t < kPanelTokens; ++t) {
      std::memcpy(room + t * bytes, tokens.records[t] + at, static_cast<size_t>(bytes));
    }
    first = room;
    stride = bytes;
  }
};

// totals[kPanelTokens][kPanelVectors] += `blocks` (at least 1) blocks of a panel times the tokens
// of a tile. The panel stays in the first-level cache, because tokens are loaded past it.
template <class Traits>
[[gnu::noinline]] void MultiplyTile(const __m512* panel, int64_t blocks, const TileTokens& tokens,
                                    PanelActivations at, __m512* totals) {
  constexpr int64_t kTotalsStride = 64 * kPanelVectors;
  alignas(64) std::byte room[kPanelTokens * 2 * kWideTokenValues];
  const int64_t bytes = 64 * blocks;
  const TileHalves halves(tokens, at.halves, bytes, room);
  Tiles::Load<kSums>(totals, kTotalsStride);
  Tiles::Load<kSums + 1>(totals + 1, kTotalsStride);
  const std::byte* activations = halves.first;
  const __m512* next = totals + kPanelTokens * kPanelVectors;
  for (int64_t block = 0; block < blocks; ++block) {
    __builtin_prefetch(next, 1);
    __builtin_prefetch(next + 1, 1);
    next += 2;
    Tiles::LoadPastCache<kTokens>(activations, halves.stride);
    Tiles::Load<kWeights>(panel, 64);
    Tiles::MultiplyBf16<kSums, kTokens, kWeights>();
    Tiles::Load<kWeights>(panel + kTileLines, 64);
    Tiles::MultiplyBf16<kSums + 1, kTokens, kWeights>();
    activations += 64;
    panel += Traits::kBlock;
  }
  Tiles::Store<kSums>(totals, kTotalsStride);
  Tiles::Store<kSums + 1>(totals + 1, kTotalsStride);
}
