// Products of float weights with float activations of few tokens that have the arithmetic of many,
// as short texts of an embedding model have. An instruction set includes this file after
// matmul_float_panel.inl.
//
// A lane belongs to one token, so weights are never transposed: where they serve few tokens, that
// would take longer than the products. Activations are transposed instead, once for many rows. A
// row's weights are broadcast to the lanes one after the other.
//
// The bits are those of panels: 256 columns in ascending order, then the next 256.

// Vectors of tokens that share a broadcast at most, and sets of so many: more go to panels, which
// were as fast with 64 to 96 tokens on Emerald Rapids.
constexpr int64_t kFloatTokenVectors = 2;
constexpr int64_t kFloatTokenTiles = 2;
constexpr int64_t kFloatTokensMax = kFloatTokenTiles * kFloatTokenVectors * kLanes;

// Rows whose sums fit the registers beside those of as many vectors of tokens.
constexpr int FloatTokenRows(int vectors) {
  int rows = static_cast<int>(kLanes);
  while (rows * vectors > kFloatPanelSums) rows /= 2;
  return rows;
}

// The parts of a thread's scratch memory, which is that of panels.
struct FloatTokenScratch {
  F32* tokens;  // [kFloatPanelCols] of each vector
  F32* sums;    // [kLanes rows][kFloatTokenVectors]
  float* rows;  // [kLanes][kFloatTokenStride]

  explicit FloatTokenScratch(std::byte* bytes)
      : tokens(FloatPanelScratch(bytes).panels),
        sums(tokens + kFloatTokenTiles * kFloatTokenVectors * kFloatPanelCols),
        rows(FloatPanelScratch(bytes).rows) {}

  static_assert((kFloatTokenTiles * kFloatTokenVectors * kFloatPanelCols +
                 kLanes * kFloatTokenVectors) *
                        sizeof(F32) <=
                    kFloatPassRows / kLanes * kFloatPanelCols * sizeof(F32),
                "tokens and sums lie where panels would");
};

// Tokens that share broadcasts: vector v of column c is at tokens[c * vectors + v].
struct FloatTokenTile {
  int64_t token;
  int64_t count;
  int vectors;
  F32* lanes;
};

// Transposes the block's columns of a tile's tokens; lanes of tokens that do not exist are zero.
inline void PackFloatTokens(const MatMulTask& task, const FloatBlock& block,
                            const FloatTokenTile& tile) {
  for (int v = 0; v < tile.vectors; ++v) {
    const int64_t first = v * kLanes;
    for (int64_t col = 0; col < block.cols; col += kLanes) {
      const int64_t cols = std::min(kLanes, block.cols - col);
      F32 lanes[kLanes];
#pragma GCC unroll 16
      for (int64_t t = 0; t < kLanes; ++t) {
        const std::byte* from = task.activations +
                                (tile.token + first + t) * task.activation_stride +
                                (block.col + col) * ElementF32::kBytes;
        lanes[t] = first + t >= tile.count ? Zero()
                   : cols == kLanes        ? ElementF32::Load(from)
                                           : ElementF32::LoadFirst(from, cols);
      }
      TransposeFloats(lanes);
      for (int64_t c = 0; c < cols; ++c) tile.lanes[(col + c) * tile.vectors + v] = lanes[c];
    }
  }
}

// sums[r * kVectors + v] = row r times vector v of tokens over `cols` columns.
template <int kRows, int kVectors>
[[gnu::noinline]] void MultiplyFloatTokens(const float* rows, const F32* tokens, int64_t cols,
                                           F32* sums) {
  F32 local[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) local[r][v] = Zero();
  }
  for (int64_t col = 0; col < cols; ++col) {
    F32 x[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) x[v] = tokens[col * kVectors + v];
    const F32* ahead = tokens + (col + kFloatPanelPrefetch) * kVectors;
    for (size_t byte = 0; byte < sizeof(x); byte += kCacheLineBytes) {
      __builtin_prefetch(reinterpret_cast<const std::byte*>(ahead) + byte);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F32 w = BroadcastFloat(rows + r * kFloatTokenStride + col);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) local[r][v] = MulAdd(x[v], w, local[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r * kVectors + v] = local[r][v];
  }
}

// kLanes rows times a tile of `vectors` vectors.
template <int kVectors = 1>
void MultiplyFloatTokenTile(const FloatTokenTile& tile, int64_t cols, const float* rows,
                            F32* sums) {
  if constexpr (kVectors < kFloatTokenVectors) {
    if (tile.vectors > kVectors) {
      return MultiplyFloatTokenTile<kVectors + 1>(tile, cols, rows, sums);
    }
  }
  constexpr int kRows = FloatTokenRows(kVectors);
  for (int64_t r = 0; r < kLanes; r += kRows) {
    MultiplyFloatTokens<kRows, kVectors>(rows + r * kFloatTokenStride, tile.lanes, cols,
                                         sums + r * kVectors);
  }
}

// The outputs of kLanes rows from `row` on, of which those before `end` exist.
inline void PutFloatTokens(const MatMulTask& task, int64_t row, int64_t end,
                           const FloatTokenTile& tile, const F32* sums, Store store) {
  for (int v = 0; v < tile.vectors; ++v) {
    F32 lanes[kLanes];
#pragma GCC unroll 16
    for (int64_t r = 0; r < kLanes; ++r) lanes[r] = sums[r * tile.vectors + v];
    TransposeFloats(lanes);
    const int64_t tokens = std::min(kLanes, tile.count - v * kLanes);
    for (int64_t t = 0; t < tokens; ++t) {
      PutFloats(lanes[t], end - row, store,
                task.out + (tile.token + v * kLanes + t) * task.out_stride + row);
    }
  }
}

// Rows [row, end) times all tokens over one block of columns.
template <class Element>
void RunFloatTokenBlock(const MatMulTask& task, int64_t row, int64_t end, const FloatBlock& block,
                        std::span<const FloatTokenTile> tiles, const FloatTokenScratch& scratch) {
  const Store store = block.col > 0 ? Store::kAdd : task.store;
  for (const FloatTokenTile& tile : tiles) PackFloatTokens(task, block, tile);
  for (; row < end; row += kLanes) {
    CopyFloatRows<Element>(task, row, std::min(kLanes, end - row), block, scratch.rows);
    for (const FloatTokenTile& tile : tiles) {
      MultiplyFloatTokenTile(tile, block.cols, scratch.rows, scratch.sums);
      PutFloatTokens(task, row, end, tile, scratch.sums, store);
    }
  }
}

// At most kFloatTokensMax tokens.
template <class Element>
void RunFloatTokens(const MatMulTask& task) {
  const FloatTokenScratch scratch(task.scratch.data());
  constexpr int64_t kOfTile = kFloatTokenVectors * kLanes;
  FloatTokenTile tiles[kFloatTokenTiles];
  const int64_t count = (task.tokens + kOfTile - 1) / kOfTile;
  for (int64_t i = 0; i < count; ++i) {
    // Tiles of about the same size.
    const int64_t vectors = (task.tokens + kLanes - 1) / kLanes;
    const int64_t first = vectors * i / count;
    const int64_t of_tile = vectors * (i + 1) / count - first;
    tiles[i] = {.token = first * kLanes,
                .count = std::min(task.tokens - first * kLanes, of_tile * kLanes),
                .vectors = static_cast<int>(of_tile),
                .lanes = scratch.tokens + first * kFloatPanelCols};
  }
  for (int64_t row = task.row_begin; row < task.row_end; row += kFloatPassRows) {
    const int64_t end = std::min(row + kFloatPassRows, task.row_end);
    for (int64_t col = 0; col < task.cols; col += kFloatPanelCols) {
      const FloatBlock block{col, std::min(kFloatPanelCols, task.cols - col)};
      RunFloatTokenBlock<Element>(task, row, end, block, {tiles, static_cast<size_t>(count)},
                                  scratch);
    }
    if (task.finish == nullptr) continue;
    for (int64_t t = 0; t < task.tokens; ++t) {
      task.finish->finish(task.finish->context, t, row, end - row,
                          task.out + t * task.out_stride + row);
    }
  }
}

// Products with many tokens' arithmetic, whatever their number is.
template <class Element>
void RunManyFloats(const MatMulTask& task) {
  task.tokens <= kFloatTokensMax ? RunFloatTokens<Element>(task) : RunFloatPanels<Element>(task);
}
