// Products of float weights (F32, F16, BF16) with float activations of fewer than 64 tokens, shared
// by the vector instruction sets. An instruction set includes this file in its namespace and target
// region, after it has defined F32, kLanes, kFloatTileRows, kFloatTileTokens, Zero, MulAdd,
// StoreFloats, SumEight and one Element type per format.
//
// Every (row, token) pair has one vector of running sums, columns ascending, whatever tile it is
// part of: that fixes the bits.
//
// Weights stream from memory once, from kFloatTileRows parts of the rows side by side, because a
// core has more reads under way from several ascending streams than from one. As many rows as stay
// in the second-level cache are read for a tile of tokens, then for the next; converting halves
// anew for every tile costs less than keeping floats, which take twice the room.

constexpr int64_t kFloatPanelBytes = 256 * 1024;
// How far ahead of its use a weight of a stream is asked for; measured on reads from memory.
constexpr int64_t kFloatPrefetchBytes = 2304;
constexpr int64_t kCacheLineBytes = 64;
// Vectors of sums of eight rows of every stream.
constexpr int64_t kFloatSums = kFloatTileTokens * kFloatTileRows * 8;

// Rows of elements, `stride` bytes apart.
template <class Element>
struct ElementRows {
  const std::byte* bytes;
  int64_t stride;

  [[gnu::always_inline]] const std::byte* At(int64_t row, int64_t col) const {
    return bytes + row * stride + col * Element::kBytes;
  }
};

// sums[r][t] += row r . token t over the kLanes columns from `col` on.
template <class Element, int kRows, int kTokens>
[[gnu::always_inline]] inline void AddF32s(const ElementRows<Element>& rows,
                                           const ElementRows<ElementF32>& tokens, int64_t col,
                                           F32 (&sums)[kRows][kTokens]) {
  F32 x[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) x[t] = ElementF32::Load(tokens.At(t, col));
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const F32 w = Element::Load(rows.At(r, col));
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) sums[r][t] = MulAdd(w, x[t], sums[r][t]);
  }
}

// sums[r][t] += row r . token t over `cols` columns.
template <class Element, int kRows, int kTokens>
[[gnu::always_inline]] inline void AddFloatProducts(const ElementRows<Element>& rows,
                                                    const ElementRows<ElementF32>& tokens,
                                                    int64_t cols, F32 (&sums)[kRows][kTokens]) {
  constexpr int64_t kLine = kCacheLineBytes / Element::kBytes;
  int64_t col = 0;
  for (; col + kLine <= cols; col += kLine) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) __builtin_prefetch(rows.At(r, col) + kFloatPrefetchBytes);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLine; i += kLanes) AddF32s(rows, tokens, col + i, sums);
  }
  for (; col + kLanes <= cols; col += kLanes) AddF32s(rows, tokens, col, sums);
  if (const int64_t left = cols - col; left > 0) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const F32 x = ElementF32::LoadFirst(tokens.At(t, col), left);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const F32 w = Element::LoadFirst(rows.At(r, col), left);
        sums[r][t] = MulAdd(w, x, sums[r][t]);
      }
    }
  }
}

// The sums of up to eight rows that follow each other.
inline void StoreFloatSums(const MatMulTask& task, int64_t row, int64_t rows, int64_t token,
                           const F32* lanes) {
  float sums[8];
  SumEight(lanes, 1, sums);
  float* out = task.out + token * task.out_stride + row;
  for (int64_t r = 0; r < std::min<int64_t>(rows, 8); ++r) {
    out[r] = task.store == Store::kAdd ? out[r] + sums[r] : sums[r];
  }
}

// All columns of kRows rows, `step` rows apart from `row` on, times the kTokens tokens from `token`
// on: sums[(t * kRows + r) * 8]. A function of its own, so that a test can look at its registers.
template <class Element, int kRows, int kTokens>
[[gnu::noinline]] void MultiplyFloatStreams(const MatMulTask& task, int64_t row, int64_t step,
                                            int64_t token, F32* sums) {
  const ElementRows<Element> rows{task.weights + row * task.row_bytes, step * task.row_bytes};
  const ElementRows<ElementF32> tokens{task.activations + token * task.activation_stride,
                                       task.activation_stride};
  F32 local[kRows][kTokens];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) local[r][t] = Zero();
  }
  AddFloatProducts(rows, tokens, task.cols, local);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) sums[(t * kRows + r) * 8] = local[r][t];
  }
}

// MultiplyFloatStreams of an element type, compiled for one number of rows and of tokens.
struct FloatStreams {
  void (*multiply)(const MatMulTask& task, int64_t row, int64_t step, int64_t token, F32* sums);
  int64_t rows, tokens;

  template <class Element, int kRows, int kTokens>
  static FloatStreams Of() {
    return {MultiplyFloatStreams<Element, kRows, kTokens>, kRows, kTokens};
  }

  // kFloatTileRows rows and `tokens` tokens.
  template <class Element, int kTokens = kFloatTileTokens>
  static FloatStreams For(int64_t tokens) {
    if constexpr (kTokens > 1) {
      if (tokens < kTokens) return For<Element, kTokens - 1>(tokens);
    }
    return Of<Element, kFloatTileRows, kTokens>();
  }
};

// Streams of `part` rows each, from row `begin` on, times the tokens from `token` on.
inline void RunFloatStreams(const MatMulTask& task, const FloatStreams& streams, int64_t begin,
                            int64_t part, int64_t token) {
  F32* sums = reinterpret_cast<F32*>(task.scratch.data());
  for (int64_t row = 0; row < part; row += 8) {
    const int64_t rows = std::min<int64_t>(8, part - row);
    // The sums of the eight rows of a stream lie side by side.
    for (int64_t r = 0; r < rows; ++r) {
      streams.multiply(task, begin + row + r, part, token, sums + r);
    }
    for (int64_t t = 0; t < streams.tokens; ++t) {
      for (int64_t stream = 0; stream < streams.rows; ++stream) {
        StoreFloatSums(task, begin + stream * part + row, rows, token + t,
                       sums + (t * streams.rows + stream) * 8);
      }
    }
  }
}

// How an element type's rows are multiplied: several rows side by side with a tile of tokens, and
// one row with one token, for the few rows that are left over.
struct FloatFormat {
  FloatStreams (*several)(int64_t tokens);
  FloatStreams one;
};

// Rows [row, end) times tokens [token, token_end), at most kFloatTileTokens.
inline void RunFloatTile(const MatMulTask& task, const FloatFormat& format, int64_t row,
                         int64_t end, int64_t token, int64_t token_end) {
  const int64_t part = (end - row) / kFloatTileRows;
  RunFloatStreams(task, format.several(token_end - token), row, part, token);
  row += part * kFloatTileRows;
  for (; row < end && token < token_end; ++token) {
    RunFloatStreams(task, format.one, row, end - row, token);
  }
}

[[gnu::noinline]] inline void RunFloat(const MatMulTask& task, const FloatFormat& format) {
  // Tiles of about the same size.
  const int64_t tiles = (task.tokens + kFloatTileTokens - 1) / kFloatTileTokens;
  const int64_t panel_rows =
      tiles == 1 ? task.row_end - task.row_begin
                 : std::max<int64_t>(kFloatPanelBytes / task.row_bytes / kFloatTileRows, 1) *
                       kFloatTileRows;
  for (int64_t row = task.row_begin; row < task.row_end; row += panel_rows) {
    const int64_t end = std::min(row + panel_rows, task.row_end);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      RunFloatTile(task, format, row, end, task.tokens * tile / tiles,
                   task.tokens * (tile + 1) / tiles);
    }
  }
}

template <class Element>
void RunFloat(const MatMulTask& task) {
  RunFloat(task, {FloatStreams::For<Element>, FloatStreams::Of<Element, 1, 1>()});
}
