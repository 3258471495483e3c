// Products of float weights (F32, F16, BF16) with float activations of 64 and more tokens in AMX.
// Included inside the target region of matmul.cpp, after bf16_panel.inl and float_elements.inl.
//
// A float of 24 bits is the exact sum of three bfloat16 numbers of 8 bits each: its upper half, the
// upper half of the remainder, and the rest. Weights have as many parts as their bits need: F32
// three, F16 two, BF16 one; activations have three. Products of parts are exact in a tile product;
// products that lie below the 24th bit of the whole are left out.
//
// As in matmul_panel.inl some columns of a few rows, a panel, stay in the first-level cache while
// the tokens pass by, and sums stay in the second-level one. An output is the sum over its columns
// in ascending order, 32 at a time: neither rows and tokens beside it nor borders of tiles change a
// bit.

constexpr int64_t kFloatStepCols = 32;
constexpr int64_t kFloatDepth = 256;  // columns of a panel
constexpr int64_t kFloatSteps = kFloatDepth / kFloatStepCols;
constexpr int64_t kFloatPassPanels = 8;
constexpr int64_t kFloatPassTokens = 512;
constexpr int kTokenParts = 3;
constexpr int64_t kLineHalves = 32;  // numbers of a line of a tile
constexpr int64_t kTileHalves = kTileLines * kLineHalves;
constexpr int64_t kFloatPanelHeight = 2 * kTileLines;

// Parts of a weight.
template <class Element>
constexpr int kWeightParts = Element::kBytes == 4 ? 3 : 2;
template <>
constexpr int kWeightParts<ElementBf16> = 1;

// The parts of a thread's scratch memory.
struct FloatTileScratch {
  // [kFloatPassPanels][kFloatPassTokens / 16][16 tokens][2 tiles of rows] vectors
  __m512* sums;
  uint16_t* panel;   // [kFloatSteps][parts][2 tiles of rows][kTileHalves]
  uint16_t* tokens;  // [kFloatPassTokens / 16][kFloatSteps][kTokenParts][kTileHalves]

  static constexpr int64_t kSums = kFloatPassPanels * kFloatPassTokens * 2;
  static constexpr int64_t kPanel = kFloatSteps * 3 * 2 * kTileHalves;
  static constexpr int64_t kTileTokens = kFloatSteps * kTokenParts * kTileHalves;
  static constexpr int64_t kTokens = kFloatPassTokens / kTileLines * kTileTokens;

  explicit FloatTileScratch(std::byte* bytes)
      : sums(reinterpret_cast<__m512*>(bytes)),
        panel(reinterpret_cast<uint16_t*>(sums + kSums)),
        tokens(panel + kPanel) {}

  static constexpr size_t Bytes() {
    return kSums * sizeof(__m512) + (kPanel + kTokens) * sizeof(uint16_t);
  }
};

// The upper half of each float, as a float.
inline __m512 UpperHalves(__m512 x) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), upper));
}

// The rest of x beside one of its parts; the rest of infinity is zero.
inline __m512 RestOf(__m512 x, __m512 part) {
  const __m512 left = _mm512_sub_ps(x, part);
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(left, left, _CMP_ORD_Q), left);
}

// The first kParts parts of 32 floats, as lines `stride` numbers apart.
template <int kParts>
[[gnu::always_inline]] inline void PutParts(__m512 low, __m512 high, int64_t stride,
                                            uint16_t* line) {
#pragma GCC unroll 3
  for (int part = 0; part < kParts; ++part) {
    const __m512 low_part = UpperHalves(low);
    const __m512 high_part = UpperHalves(high);
    _mm512_storeu_si512(line + part * stride,
                        reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high_part, low_part)));
    if (part + 1 == kParts) break;
    low = RestOf(low, low_part);
    high = RestOf(high, high_part);
  }
}

// Sixteen elements from column `col` of a row of `cols` columns on; those beyond it are zero.
template <class Element>
[[gnu::always_inline]] inline __m512 LoadColumns(const std::byte* row, int64_t col, int64_t cols) {
  const std::byte* from = row + col * Element::kBytes;
  if (col + kLanes <= cols) return Element::Load(from);
  return col < cols ? Element::LoadFirst(from, cols - col) : _mm512_setzero_ps();
}

// Columns [col, col + kFloatDepth) of 16 tokens from `token` on; tokens that do not exist are zero.
inline void PackTokens(const MatMulTask& task, int64_t token, int64_t col, uint16_t* tile) {
  for (int64_t t = 0; t < kTileLines; ++t) {
    const bool exists = token + t < task.tokens;
    const std::byte* row = task.activations + (exists ? token + t : 0) * task.activation_stride;
    const int64_t cols = exists ? task.cols : 0;
    for (int64_t step = 0; step < kFloatSteps; ++step) {
      const int64_t at = col + step * kFloatStepCols;
      PutParts<kTokenParts>(LoadColumns<ElementF32>(row, at, cols),
                            LoadColumns<ElementF32>(row, at + kLanes, cols), kTileHalves,
                            tile + step * kTokenParts * kTileHalves + t * kLineHalves);
    }
  }
}

// Columns [col, col + kFloatDepth) of the rows of a panel from `row` on; rows that do not exist are
// zero. Columns 2p and 2p + 1 of the rows make line p of a tile.
template <class Element>
void PackFloatTiles(const MatMulTask& task, int64_t row, int64_t col, uint16_t* panel) {
  constexpr int kParts = kWeightParts<Element>;
  alignas(64) uint16_t halves[kParts][kTileHalves];
  for (int64_t v = 0; v < 2; ++v) {
    for (int64_t step = 0; step < kFloatSteps; ++step) {
      const int64_t at = col + step * kFloatStepCols;
      for (int64_t r = 0; r < kTileLines; ++r) {
        const int64_t from = row + v * kTileLines + r;
        const std::byte* weights = task.weights + std::min(from, task.row_end - 1) * task.row_bytes;
        const int64_t cols = from < task.row_end ? task.cols : 0;
        PutParts<kParts>(LoadColumns<Element>(weights, at, cols),
                         LoadColumns<Element>(weights, at + kLanes, cols), kTileHalves,
                         halves[0] + r * kLineHalves);
      }
      for (int part = 0; part < kParts; ++part) {
        __m512i lines[16];
        for (int64_t r = 0; r < kTileLines; ++r) {
          lines[r] = _mm512_load_si512(halves[part] + r * kLineHalves);
        }
        TransposeLanes(lines);
        __m512i* to =
            reinterpret_cast<__m512i*>(panel + ((step * kParts + part) * 2 + v) * kTileHalves);
        for (int64_t p = 0; p < kTileLines; ++p) to[p] = lines[p];
      }
    }
  }
}

// Tiles by number: sums of two tiles of rows, the parts of the tokens, one of weights.
constexpr int kFloatTokens = 2, kFloatWeights = 5;

inline TileConfig ConfigOfFloats() {
  TileConfig config;
  for (int tile = 0; tile <= kFloatWeights; ++tile) {
    config.rows[tile] = kTileLines;
    config.row_bytes[tile] = 64;
  }
  return config;
}

// Sums of tile kRows of rows += part `kPart` of the weights times all parts of the tokens that
// together do not lie below the last bit.
template <int kRows, int kPart>
[[gnu::always_inline]] inline void MultiplyParts(const uint16_t* weights) {
  Tiles::Load<kFloatWeights>(weights, 64);
  Tiles::MultiplyBf16<kRows, kFloatTokens, kFloatWeights>();
  if constexpr (kPart < 2) {
    Tiles::MultiplyBf16<kRows, kFloatTokens + 1, kFloatWeights>();
  }
  if constexpr (kPart < 1) {
    Tiles::MultiplyBf16<kRows, kFloatTokens + 2, kFloatWeights>();
  }
}

// sums[16 tokens][2 tiles of rows] += a panel times a tile of tokens.
template <int kParts>
[[gnu::noinline]] void MultiplyFloatTile(const uint16_t* panel, const uint16_t* tokens,
                                         __m512* sums) {
  Tiles::Load<0>(sums, 128);
  Tiles::Load<1>(sums + 1, 128);
  for (int64_t step = 0; step < kFloatSteps; ++step) {
    Tiles::LoadPastCache<kFloatTokens>(tokens, 64);
    Tiles::LoadPastCache<kFloatTokens + 1>(tokens + kTileHalves, 64);
    Tiles::LoadPastCache<kFloatTokens + 2>(tokens + 2 * kTileHalves, 64);
    MultiplyParts<0, 0>(panel);
    MultiplyParts<1, 0>(panel + kTileHalves);
    if constexpr (kParts > 1) {
      MultiplyParts<0, 1>(panel + 2 * kTileHalves);
      MultiplyParts<1, 1>(panel + 3 * kTileHalves);
    }
    if constexpr (kParts > 2) {
      MultiplyParts<0, 2>(panel + 4 * kTileHalves);
      MultiplyParts<1, 2>(panel + 5 * kTileHalves);
    }
    tokens += kTokenParts * kTileHalves;
    panel += kParts * 2 * kTileHalves;
  }
  Tiles::Store<0>(sums, 128);
  Tiles::Store<1>(sums + 1, 128);
}

// At most kFloatPassPanels panels of rows from `row` on times at most kFloatPassTokens tokens from
// `token` on.
template <class Element>
void RunFloatPass(const MatMulTask& task, int64_t row, int64_t token,
                  const FloatTileScratch& scratch) {
  const int64_t row_end = std::min(row + kFloatPassPanels * kFloatPanelHeight, task.row_end);
  const int64_t tokens = std::min(kFloatPassTokens, task.tokens - token);
  const int64_t tiles = (tokens + kTileLines - 1) / kTileLines;
  constexpr int64_t kTileSums = 2 * kTileLines;
  for (int64_t col = 0; col < task.cols; col += kFloatDepth) {
    for (int64_t tile = 0; tile < tiles; ++tile) {
      PackTokens(task, token + tile * kTileLines, col,
                 scratch.tokens + tile * FloatTileScratch::kTileTokens);
    }
    __m512* sums = scratch.sums;
    for (int64_t at = row; at < row_end; at += kFloatPanelHeight) {
      PackFloatTiles<Element>(task, at, col, scratch.panel);
      for (int64_t tile = 0; tile < tiles; ++tile, sums += kTileSums) {
        if (col == 0) std::fill_n(sums, kTileSums, _mm512_setzero_ps());
        MultiplyFloatTile<kWeightParts<Element>>(
            scratch.panel, scratch.tokens + tile * FloatTileScratch::kTileTokens, sums);
      }
    }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    float* out = task.out + (token + t) * task.out_stride;
    for (int64_t at = row; at < row_end; at += kTileLines) {
      const int64_t panel = (at - row) / kFloatPanelHeight;
      const int64_t v = (at - row) / kTileLines % 2;
      const __m512 sum = scratch.sums[panel * tiles * kTileSums + t * 2 + v];
      StoreLanes(sum, task.row_end - at, task.store, out + at);
    }
  }
}

template <class Element>
void RunFloatTiles(const MatMulTask& task) {
  const FloatTileScratch scratch(task.scratch.data());
  Tiles::Configure(ConfigOfFloats());
  for (int64_t token = 0; token < task.tokens; token += kFloatPassTokens) {
    for (int64_t row = task.row_begin; row < task.row_end;
         row += kFloatPassPanels * kFloatPanelHeight) {
      RunFloatPass<Element>(task, row, token, scratch);
    }
  }
  Tiles::Release();
}
