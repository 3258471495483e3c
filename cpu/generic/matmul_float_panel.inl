// Products of float weights (F32, F16, BF16) with float activations of 64 and more tokens. An
// instruction set includes this file after matmul_float.inl and after it has defined
//
//   kFloatPanelVectors, kFloatPanelTokens   the tile whose sums fit the registers
//   BroadcastFloat, TransposeFloats
//
// A lane belongs to one output row, so sums never cross lanes. Weights are converted and transposed
// once, some columns of many rows at a time, into panels that stay in the second-level cache; tile
// after tile of tokens, copied to where they lie close together in the first-level cache, passes by
// them.
//
// An output is the sum over its blocks of kFloatPanelCols columns in ascending order, each the sum
// of its products in ascending order: neither rows and tokens beside it nor borders of tiles change
// a bit. With Store::kAdd the blocks are added to what was there, one after the other.

constexpr int64_t kFloatPanelCols = 256;
constexpr int64_t kFloatPanelRows = kFloatPanelVectors * kLanes;
// Rows whose panels are made before the tokens pass by.
constexpr int64_t kFloatPassRows = 256;
// Floats from one token of a tile to the next. The number is not a power of two, with which all
// tokens would compete for the same few places of the cache.
constexpr int64_t kFloatTokenStride = kFloatPanelCols + 16;
// Columns ahead of its use at which a panel is fetched into the first-level cache.
constexpr int64_t kFloatPanelPrefetch = 8;
constexpr int64_t kFloatPanelSums = kFloatPanelVectors * kFloatPanelTokens;

static_assert(kFloatPassRows % kFloatPanelRows == 0);

// The parts of a thread's scratch memory.
struct FloatPanelScratch {
  F32* panels;    // [kFloatPassRows / kFloatPanelRows][kFloatPanelCols][kFloatPanelVectors]
  F32* sums;      // [kFloatPanelTokens][kFloatPanelVectors]
  float* tokens;  // [kFloatPanelTokens][kFloatTokenStride]
  float* rows;    // [kLanes][kFloatTokenStride]

  explicit FloatPanelScratch(std::byte* bytes)
      : panels(reinterpret_cast<F32*>(bytes)),
        sums(panels + kFloatPassRows / kLanes * kFloatPanelCols),
        tokens(reinterpret_cast<float*>(sums + kFloatPanelSums)),
        rows(tokens + kFloatPanelTokens * kFloatTokenStride) {}

  static constexpr size_t Bytes() {
    return (kFloatPassRows / kLanes * kFloatPanelCols + kFloatPanelSums) * sizeof(F32) +
           (kFloatPanelTokens + kLanes) * kFloatTokenStride * sizeof(float);
  }
};

// Columns [col, col + cols) of the task.
struct FloatBlock {
  int64_t col, cols;

  // Columns in panels and copies of tokens; columns beyond the last are zero in both.
  int64_t Padded() const { return (cols + kLanes - 1) / kLanes * kLanes; }
};

// The block's columns of `rows` <= kLanes rows as floats, kFloatTokenStride apart: in the file, a
// multiple of 4 KiB apart, rows would compete for the same few places of the cache. The next kLanes
// rows are asked for.
template <class Element>
void CopyFloatRows(const MatMulTask& task, int64_t row, int64_t rows, const FloatBlock& block,
                   float* copies) {
  const int64_t whole = block.cols / kLanes * kLanes;
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* from = task.weights + (row + r) * task.row_bytes + block.col * Element::kBytes;
    float* copy = copies + r * kFloatTokenStride;
    for (int64_t byte = 0; byte < block.cols * Element::kBytes; byte += kCacheLineBytes) {
      __builtin_prefetch(from + kLanes * task.row_bytes + byte, 0, 2);
    }
    for (int64_t col = 0; col < whole; col += kLanes) {
      StoreFloats(copy + col, Element::Load(from + col * Element::kBytes));
    }
    if (whole < block.cols) {
      StoreFloats(copy + whole,
                  Element::LoadFirst(from + whole * Element::kBytes, block.cols - whole));
    }
  }
}

// kLanes rows from `row` on as vector `v` of a panel; rows that do not exist are zero.
template <class Element>
void PackFloatRows(const MatMulTask& task, int64_t row, const FloatBlock& block, float* copies,
                   F32* to) {
  const int64_t rows = std::clamp<int64_t>(task.row_end - row, 0, kLanes);
  CopyFloatRows<Element>(task, row, rows, block, copies);
  for (int64_t col = 0; col < block.cols; col += kLanes) {
    F32 lanes[kLanes];
#pragma GCC unroll 16
    for (int64_t r = 0; r < kLanes; ++r) {
      lanes[r] = r < rows ? ElementF32::Load(reinterpret_cast<const std::byte*>(
                                copies + r * kFloatTokenStride + col))
                          : Zero();
    }
    TransposeFloats(lanes);
#pragma GCC unroll 16
    for (int64_t c = 0; c < kLanes; ++c) to[(col + c) * kFloatPanelVectors] = lanes[c];
  }
}

// Rows [row, end) as panels.
template <class Element>
void PackFloatPanels(const MatMulTask& task, int64_t row, int64_t end, const FloatBlock& block,
                     const FloatPanelScratch& scratch) {
  F32* panels = scratch.panels;
  for (; row < end; row += kFloatPanelRows) {
    for (int64_t v = 0; v < kFloatPanelVectors; ++v) {
      PackFloatRows<Element>(task, row + v * kLanes, block, scratch.rows, panels + v);
    }
    panels += kFloatPanelCols * kFloatPanelVectors;
  }
}

// The block's columns of a tile's tokens; tokens that do not exist are zero.
inline void CopyFloatTokens(const MatMulTask& task, int64_t token, const FloatBlock& block,
                            float* to) {
  for (int64_t t = 0; t < kFloatPanelTokens; ++t) {
    const std::byte* from =
        task.activations + (token + t) * task.activation_stride + block.col * ElementF32::kBytes;
    const bool exists = token + t < task.tokens;
    for (int64_t col = 0; col < block.cols; col += kLanes) {
      const int64_t count = std::min(kLanes, block.cols - col);
      const std::byte* p = from + col * ElementF32::kBytes;
      StoreFloats(to + t * kFloatTokenStride + col, !exists ? Zero()
                                                    : count == kLanes
                                                        ? ElementF32::Load(p)
                                                        : ElementF32::LoadFirst(p, count));
    }
  }
}

// Lines of memory that a panel's product asks for while it runs: one column of lines after the
// other, because many at once would hold it up.
struct FloatPrefetch {
  // The copies of the next tile: some of its tokens.
  const std::byte* tokens;
  int64_t token_stride;
  int64_t token_count;
  // The outputs.
  const float* out;
  int64_t out_stride;
  int64_t out_count;

  [[gnu::always_inline]] void AtColumn(int64_t col) const {
    const std::byte* line = tokens + col * ElementF32::kBytes;
    for (int64_t t = 0; t < token_count; ++t) __builtin_prefetch(line + t * token_stride, 0, 2);
    const int64_t t = col / kLanes;
    if (t >= out_count) return;
#pragma GCC unroll 4
    for (int v = 0; v < kFloatPanelVectors; ++v) {
      __builtin_prefetch(out + t * out_stride + v * kLanes, 1, 2);
    }
  }
};

// sums[t][v] = vector v of a panel times token t over `cols` columns, a multiple of kLanes.
[[gnu::noinline]] inline void MultiplyFloatPanel(const F32* panel, const float* tokens,
                                                 int64_t cols, const FloatPrefetch& prefetch,
                                                 F32* sums) {
  F32 local[kFloatPanelTokens][kFloatPanelVectors];
#pragma GCC unroll 16
  for (int t = 0; t < kFloatPanelTokens; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < kFloatPanelVectors; ++v) local[t][v] = Zero();
  }
  for (int64_t begin = 0; begin < cols; begin += kLanes) {
    prefetch.AtColumn(begin);
#pragma GCC unroll 4
    for (int64_t col = begin; col < begin + kLanes; ++col) {
      F32 w[kFloatPanelVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kFloatPanelVectors; ++v) w[v] = panel[col * kFloatPanelVectors + v];
      for (size_t byte = 0; byte < sizeof(w); byte += kCacheLineBytes) {
        __builtin_prefetch(reinterpret_cast<const std::byte*>(panel + (col + kFloatPanelPrefetch) *
                                                                          kFloatPanelVectors) +
                           byte);
      }
#pragma GCC unroll 16
      for (int t = 0; t < kFloatPanelTokens; ++t) {
        const F32 x = BroadcastFloat(tokens + t * kFloatTokenStride + col);
#pragma GCC unroll 4
        for (int v = 0; v < kFloatPanelVectors; ++v) {
          local[t][v] = MulAdd(w[v], x, local[t][v]);
        }
      }
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < kFloatPanelTokens; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < kFloatPanelVectors; ++v) sums[t * kFloatPanelVectors + v] = local[t][v];
  }
}

// out[0..count) = (or +=) lanes, where count may be less than all.
inline void PutFloats(F32 lanes, int64_t count, Store store, float* out) {
  const bool add = store == Store::kAdd;
  std::byte* bytes = reinterpret_cast<std::byte*>(out);
  if (count >= kLanes) {
    StoreFloats(out, add ? ElementF32::Load(bytes) + lanes : lanes);
  } else if (count > 0) {
    alignas(64) float values[kLanes];
    StoreFloats(values, lanes);
    for (int64_t i = 0; i < count; ++i) out[i] = add ? out[i] + values[i] : values[i];
  }
}

// Prefetches the columns after a block, `bytes` bytes of each of the rows [row, end): part `part`
// of `parts`. Always inline, because GCC 12 drops calls of functions that do nothing but prefetch.
[[gnu::always_inline]] inline void PrefetchNextBlock(const MatMulTask& task, int64_t row,
                                                     int64_t end, int64_t byte, int64_t bytes,
                                                     int64_t part, int64_t parts) {
  const int64_t rows = end - row;
  for (int64_t r = row + rows * part / parts; r < row + rows * (part + 1) / parts; ++r) {
    const std::byte* from = task.weights + r * task.row_bytes + byte;
    for (int64_t line = 0; line < bytes; line += kCacheLineBytes) {
      __builtin_prefetch(from + line, 0, 2);
    }
  }
}

// One tile of tokens times the panels of rows [row, end).
template <class Element>
void MultiplyFloatPanels(const MatMulTask& task, int64_t row, int64_t end, int64_t token,
                         const FloatBlock& block, const FloatPanelScratch& scratch) {
  const Store store = block.col > 0 ? Store::kAdd : task.store;
  const int64_t tokens = std::min<int64_t>(kFloatPanelTokens, task.tokens - token);
  const int64_t next_token = token + kFloatPanelTokens;
  const int64_t next_tokens = std::clamp<int64_t>(task.tokens - next_token, 0, kFloatPanelTokens);
  const int64_t panels = (end - row + kFloatPanelRows - 1) / kFloatPanelRows;
  const int64_t tiles = (task.tokens + kFloatPanelTokens - 1) / kFloatPanelTokens;
  const int64_t first = row;
  constexpr int64_t kBytes = kFloatPanelCols * Element::kBytes;
  for (int64_t i = 0; i < panels; ++i, row += kFloatPanelRows) {
    float* out = task.out + token * task.out_stride + row;
    const int64_t ahead = next_tokens * i / panels;
    const FloatPrefetch prefetch{task.activations + (next_token + ahead) * task.activation_stride +
                                     block.col * ElementF32::kBytes,
                                 task.activation_stride,
                                 next_tokens * (i + 1) / panels - ahead,
                                 out,
                                 task.out_stride,
                                 tokens};
    PrefetchNextBlock(task, first, end, block.col * Element::kBytes + kBytes, kBytes,
                      token / kFloatPanelTokens * panels + i, tiles * panels);
    MultiplyFloatPanel(scratch.panels + i * kFloatPanelCols * kFloatPanelVectors, scratch.tokens,
                       block.Padded(), prefetch, scratch.sums);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t v = 0; v < kFloatPanelVectors; ++v) {
        PutFloats(scratch.sums[t * kFloatPanelVectors + v], end - row - v * kLanes, store,
                  out + t * task.out_stride + v * kLanes);
      }
    }
  }
  if (task.finish == nullptr || block.col + block.cols < task.cols) return;
  for (int64_t t = token; t < token + tokens; ++t) {
    task.finish->finish(task.finish->context, t, first, end - first,
                        task.out + t * task.out_stride + first);
  }
}

template <class Element>
void RunFloatPanels(const MatMulTask& task) {
  const FloatPanelScratch scratch(task.scratch.data());
  for (int64_t row = task.row_begin; row < task.row_end; row += kFloatPassRows) {
    const int64_t end = std::min(row + kFloatPassRows, task.row_end);
    for (int64_t col = 0; col < task.cols; col += kFloatPanelCols) {
      const FloatBlock block{col, std::min(kFloatPanelCols, task.cols - col)};
      PackFloatPanels<Element>(task, row, end, block, scratch);
      for (int64_t token = 0; token < task.tokens; token += kFloatPanelTokens) {
        CopyFloatTokens(task, token, block, scratch.tokens);
        MultiplyFloatPanels<Element>(task, row, end, token, block, scratch);
      }
    }
  }
}

inline size_t FloatScratchBytes(int64_t /*cols*/) {
  return std::max(kFloatSums * sizeof(F32), FloatPanelScratch::Bytes());
}
