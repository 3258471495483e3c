// Products of panels with 64 and more tokens in AMX. Included inside the target region of
// matmul.cpp, after tile.inl, panel_layout.inl of cpu/avx512vnni and panel_operands.inl.
//
// The lines of a panel are the right-hand operand of a tile product as they lie: four columns of 16
// rows in each row of the tile. The left-hand one is the codes of 16 tokens. A product covers the
// columns of one scale; its integers go through the first-level cache to be scaled, in the
// arithmetic of cpu/avx512vnni and with the same bits.

constexpr int kPanelTokens = 16;
using TileTokens = TokenRecords<kPanelTokens>;

// Tiles by number: the sums of the two vectors of rows, the activations, the weights of each
// vector.
constexpr int kLowSums = 0, kHighSums = 1, kActivations = 2, kLowWeights = 3, kHighWeights = 4;

// The shapes for formats with one scale for 32 / kScales columns.
template <class Traits>
TileConfig ConfigOf() {
  constexpr uint8_t kLines = 8 / Traits::kScales;
  TileConfig config;
  for (const int tile : {kLowSums, kHighSums}) {
    config.rows[tile] = kPanelTokens;
    config.row_bytes[tile] = 4 * kPanelLanes;
  }
  config.rows[kActivations] = kPanelTokens;
  config.row_bytes[kActivations] = 4 * kLines;
  for (const int tile : {kLowWeights, kHighWeights}) {
    config.rows[tile] = kLines;
    config.row_bytes[tile] = 4 * kPanelLanes;
  }
  return config;
}

// The codes of a tile's tokens, the same number of bytes apart.
struct TileCodes {
  const std::byte* first;
  int64_t stride;

  // Where records stand in for tokens that are missing, the codes are copied to `room`.
  TileCodes(const TileTokens& tokens, int64_t codes, int64_t bytes, std::byte* room)
      : first(tokens.records[0] + codes), stride(tokens.records[1] - tokens.records[0]) {
    if (tokens.records[kPanelTokens - 1] == tokens.records[0] + (kPanelTokens - 1) * stride) return;
    for (int64_t t = 0; t < kPanelTokens; ++t) {
      std::memcpy(room + t * bytes, tokens.records[t] + codes, static_cast<size_t>(bytes));
    }
    first = room;
    stride = bytes;
  }
};

// totals += (dot * scale - origin) * (the activations' scale), less offset * (their sum), for one
// scale of a block; see cpu/avx512vnni/int8_panel.inl.
template <class Traits>
void AddScaled(const int32_t (&dots)[kPanelVectors][kPanelTokens][kPanelLanes],
               const __m512* scales, int scale, const TileTokens& tokens,
               const PanelActivations& at, __m512* totals) {
  for (int64_t t = 0; t < kPanelTokens; ++t) {
    const std::byte* record = tokens.records[t];
    const auto word = [record](int64_t place) __attribute__((always_inline)) {
      int32_t bits;
      std::memcpy(&bits, record + place, sizeof(bits));
      return _mm512_set1_epi32(bits);
    };
    const __m512i start = word(at.starts + 4 * scale);
    const __m512 activation_scale = _mm512_castsi512_ps(word(at.scales));
    for (int64_t v = 0; v < kPanelVectors; ++v) {
      const __m512i dot = _mm512_add_epi32(_mm512_load_si512(dots[v][t]), start);
      const __m512 product =
          _mm512_fmsub_ps(_mm512_castsi512_ps(dot), scales[v], scales[kPanelVectors + v]);
      __m512& total = totals[t * kPanelVectors + v];
      total = _mm512_fmadd_ps(product, activation_scale, total);
      if constexpr (Traits::kHasOffsets) {
        const __m512 sum = _mm512_castsi512_ps(word(at.sums + 4 * scale));
        total = _mm512_fnmadd_ps(sum, scales[2 * kPanelVectors + v], total);
      }
    }
  }
}

// totals[kPanelTokens][kPanelVectors] += `blocks` (at least 1) blocks of a panel times the tokens
// of a tile.
template <class Traits>
void MultiplyTile(const __m512* panel, int64_t blocks, const TileTokens& tokens,
                  PanelActivations at, __m512* totals) {
  constexpr int64_t kLines = 8 / Traits::kScales;
  constexpr int64_t kLineVectors = kPanelVectors;
  constexpr int64_t kDepthMax = 512;  // columns of a panel
  alignas(64) int32_t dots[kPanelVectors][kPanelTokens][kPanelLanes];
  alignas(64) std::byte room[kPanelTokens * kDepthMax];
  const TileCodes codes(tokens, at.codes, 32 * blocks, room);
  for (int64_t block = 0; block < blocks; ++block) {
    for (int scale = 0; scale < Traits::kScales; ++scale) {
      const __m512* lines = panel + scale * kLines * kLineVectors;
      Tiles::Load<kActivations>(codes.first + 32 * block + 4 * kLines * scale, codes.stride);
      Tiles::Load<kLowWeights>(lines, kLineVectors * 64);
      Tiles::Load<kHighWeights>(lines + 1, kLineVectors * 64);
      Tiles::Zero<kLowSums>();
      Tiles::Zero<kHighSums>();
      Tiles::MultiplyAdd<kLowSums, kActivations, kLowWeights>();
      Tiles::MultiplyAdd<kHighSums, kActivations, kHighWeights>();
      Tiles::Store<kLowSums>(dots[0], sizeof(dots[0][0]));
      Tiles::Store<kHighSums>(dots[1], sizeof(dots[1][0]));
      AddScaled<Traits>(dots, panel + Traits::kCodes + scale * Traits::kScaleStride, scale, tokens,
                        at, totals);
    }
    panel += Traits::kBlock;
    at = at.From(1, Traits::kScales);
  }
}
