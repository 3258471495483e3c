// Products of float weights (F32, F16, BF16) with float activations of fewer than 64 tokens, shared
// by the vector instruction sets. An instruction set includes this file in its namespace and target
// region, after it has defined FloatVector, kLanes, kFloatTileRows, kFloatTileTokens, ZeroFloats,
// MultiplyAddFloats, StoreFloats, SumEightFloats and one Element type per format.
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
[[gnu::always_inline]] inline void AddFloatVectors(const ElementRows<Element>& rows,
                                                   const ElementRows<ElementF32>& tokens,
                                                   int64_t col,
                                                   FloatVector (&sums)[kRows][kTokens]) {
  FloatVector x[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) x[t] = ElementF32::Load(tokens.At(t, col));
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const FloatVector w = Element::Load(rows.At(r, col));
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) sums[r][t] = MultiplyAddFloats(w, x[t], sums[r][t]);
  }
}

// The same over `cols` columns.
template <class Element, int kRows, int kTokens>
[[gnu::always_inline]] inline void AddFloatProducts(const ElementRows<Element>& rows,
                                                    const ElementRows<ElementF32>& tokens,
                                                    int64_t cols,
                                                    FloatVector (&sums)[kRows][kTokens]) {
  constexpr int64_t kLine = kCacheLineBytes / Element::kBytes;
  int64_t col = 0;
  for (; col + kLine <= cols; col += kLine) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) __builtin_prefetch(rows.At(r, col) + kFloatPrefetchBytes);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLine; i += kLanes) AddFloatVectors(rows, tokens, col + i, sums);
  }
  for (; col + kLanes <= cols; col += kLanes) AddFloatVectors(rows, tokens, col, sums);
  if (const int64_t left = cols - col; left > 0) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const FloatVector x = ElementF32::LoadFirst(tokens.At(t, col), left);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const FloatVector w = Element::LoadFirst(rows.At(r, col), left);
        sums[r][t] = MultiplyAddFloats(w, x, sums[r][t]);
      }
    }
  }
}

// The sums of up to eight rows that follow each other.
inline void StoreFloatSums(const MatMulTask& task, int64_t row, int64_t rows, int64_t token,
                           const FloatVector* lanes) {
  float sums[8];
  SumEightFloats(lanes, sums);
  float* out = task.out + token * task.out_stride + row;
  for (int64_t r = 0; r < std::min<int64_t>(rows, 8); ++r) {
    out[r] = task.store == Store::kAdd ? out[r] + sums[r] : sums[r];
  }
}

// All columns of rows row, row + step ... times all kTokens tokens: sums[(t * kRows + r) * 8]. A
// function of its own, so that a test can look at its registers.
template <class Element, int kRows, int kTokens>
[[gnu::noinline]] void MultiplyFloatStreams(const MatMulTask& task, int64_t row, int64_t step,
                                            FloatVector* sums) {
  const ElementRows<Element> rows{task.weights + row * task.row_bytes, step * task.row_bytes};
  const ElementRows<ElementF32> tokens{task.activations, task.activation_stride};
  FloatVector local[kRows][kTokens];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) local[r][t] = ZeroFloats();
  }
  AddFloatProducts(rows, tokens, task.cols, local);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) sums[(t * kRows + r) * 8] = local[r][t];
  }
}

// kRows streams of `part` rows each, from `begin` on.
template <class Element, int kRows, int kTokens>
void RunFloatStreams(const MatMulTask& task, int64_t begin, int64_t part) {
  FloatVector* sums = reinterpret_cast<FloatVector*>(task.scratch.data());
  for (int64_t row = 0; row < part; row += 8) {
    const int64_t rows = std::min<int64_t>(8, part - row);
    // The sums of the eight rows of a stream lie side by side.
    for (int64_t r = 0; r < rows; ++r) {
      MultiplyFloatStreams<Element, kRows, kTokens>(task, begin + row + r, part, sums + r);
    }
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t stream = 0; stream < kRows; ++stream) {
        StoreFloatSums(task, begin + stream * part + row, rows, t, sums + (t * kRows + stream) * 8);
      }
    }
  }
}

// All rows times all tokens, at most kFloatTileTokens, and the rows that are left over.
template <class Element, int kTokens = kFloatTileTokens>
void RunFloatStreams(const MatMulTask& task) {
  if constexpr (kTokens > 1) {
    if (task.tokens < kTokens) return RunFloatStreams<Element, kTokens - 1>(task);
  }
  const int64_t part = (task.row_end - task.row_begin) / kFloatTileRows;
  const int64_t rest = task.row_begin + part * kFloatTileRows;
  RunFloatStreams<Element, kFloatTileRows, kTokens>(task, task.row_begin, part);
  RunFloatStreams<Element, 1, kTokens>(task, rest, task.row_end - rest);
}

template <class Element>
void RunFloat(const MatMulTask& task) {
  // Tiles of about the same size.
  const int64_t tiles = (task.tokens + kFloatTileTokens - 1) / kFloatTileTokens;
  const int64_t panel_rows =
      tiles == 1 ? task.row_end - task.row_begin
                 : std::max<int64_t>(kFloatPanelBytes / task.row_bytes / kFloatTileRows, 1) *
                       kFloatTileRows;
  MatMulTask part = task;
  for (int64_t row = task.row_begin; row < task.row_end; row += panel_rows) {
    part.row_begin = row;
    part.row_end = std::min(row + panel_rows, task.row_end);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t token = task.tokens * tile / tiles;
      part.tokens = task.tokens * (tile + 1) / tiles - token;
      part.activations = task.activations + token * task.activation_stride;
      part.out = task.out + token * task.out_stride;
      RunFloatStreams<Element>(part);
    }
  }
}
