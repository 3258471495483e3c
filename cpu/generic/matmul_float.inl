// Products of float weights (F32, F16, BF16) with float activations, shared by the vector
// instruction sets. An instruction set includes this file in its namespace and target region, after
// it has defined FloatVector, kLanes, kFloatTileRows, kFloatTileTokens, ZeroFloats,
// MultiplyAddFloats, SumFloats and one Element type per format.
//
// Every (row, token) pair has one vector of running sums, columns ascending, whatever tile it is
// part of: that fixes the bits.

// Rows that stay in the second-level cache while all tokens pass by.
constexpr int64_t kFloatPanelBytes = 256 * 1024;
constexpr int64_t kFloatPrefetchBytes = 2048;

template <class Element, int kRows, int kTokens>
void MultiplyFloatTile(const MatMulTask& task, int64_t row, int64_t token) {
  const std::byte* weights[kRows];
  for (int r = 0; r < kRows; ++r) weights[r] = task.weights + (row + r) * task.row_bytes;
  const std::byte* activations = task.activations + token * task.activation_stride;
  FloatVector sums[kRows][kTokens];
  for (auto& row_sums : sums) {
    for (FloatVector& sum : row_sums) sum = ZeroFloats();
  }
  const int64_t whole = task.cols / kLanes * kLanes;
  for (int64_t col = 0; col < whole; col += kLanes) {
    FloatVector w[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const std::byte* p = weights[r] + col * Element::kBytes;
      __builtin_prefetch(p + kFloatPrefetchBytes, 0, 3);
      w[r] = Element::Load(p);
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const FloatVector x =
          ElementF32::Load(activations + t * task.activation_stride + col * ElementF32::kBytes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sums[r][t] = MultiplyAddFloats(w[r], x, sums[r][t]);
    }
  }
  if (const int64_t left = task.cols - whole; left > 0) {
    for (int t = 0; t < kTokens; ++t) {
      const FloatVector x = ElementF32::LoadFirst(
          activations + t * task.activation_stride + whole * ElementF32::kBytes, left);
      for (int r = 0; r < kRows; ++r) {
        const FloatVector w = Element::LoadFirst(weights[r] + whole * Element::kBytes, left);
        sums[r][t] = MultiplyAddFloats(w, x, sums[r][t]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int r = 0; r < kRows; ++r) {
      float& out = task.out[(token + t) * task.out_stride + row + r];
      const float sum = SumFloats(sums[r][t]);
      out = task.store == Store::kAdd ? out + sum : sum;
    }
  }
}

// kTokens tokens times rows [begin, end).
template <class Element, int kTokens>
void MultiplyFloatRows(const MatMulTask& task, int64_t begin, int64_t end, int64_t token) {
  int64_t row = begin;
  for (; row + kFloatTileRows <= end; row += kFloatTileRows) {
    MultiplyFloatTile<Element, kFloatTileRows, kTokens>(task, row, token);
  }
  for (; row < end; ++row) MultiplyFloatTile<Element, 1, kTokens>(task, row, token);
}

template <class Element>
void RunFloat(const MatMulTask& task) {
  const int64_t panel_rows =
      std::max<int64_t>(kFloatPanelBytes / task.row_bytes / kFloatTileRows, 1) * kFloatTileRows;
  for (int64_t begin = task.row_begin; begin < task.row_end; begin += panel_rows) {
    const int64_t end = std::min(begin + panel_rows, task.row_end);
    int64_t token = 0;
    for (; token + kFloatTileTokens <= task.tokens; token += kFloatTileTokens) {
      MultiplyFloatRows<Element, kFloatTileTokens>(task, begin, end, token);
    }
    for (; token + 2 <= task.tokens; token += 2) {
      MultiplyFloatRows<Element, 2>(task, begin, end, token);
    }
    if (token < task.tokens) MultiplyFloatRows<Element, 1>(task, begin, end, token);
  }
}

inline size_t FloatScratchBytes(int64_t /*cols*/) { return 0; }
