// Products of quantized weights with int8 activations, shared by the vector instruction sets. An
// instruction set includes this file in its namespace and target region, after it has defined
//
//   WeightBlock       256 weights of one row: codes, and scales and offsets per 16 values
//   ActivationBlock   256 activations of one token in the matching order
//   Accumulator       a vector of floats, the running sum of one (row, token) pair
//   Zero(), Sum(accumulator)
//   MultiplyAdd<Format>(weights, activations, accumulator)
//   PrepareBlock<Format>(activation row, cols, block index)
//
// and for every format a policy: kBias, kHasOffsets, Unpack(bytes, traits) -> WeightBlock.
//
// Few tokens: a row is unpacked block by block into registers and multiplied at once, so that the
// weights stream from memory once. Many tokens: a panel of rows is unpacked once and multiplied
// with all tokens. Both ways add the same numbers in the same order: one accumulator per pair, one
// MultiplyAdd per block, blocks ascending.

constexpr int64_t kBlock = quant::kBlockValuesMax;

// Tokens multiplied with a block of weights while it lies in registers.
constexpr int kTileTokens = 8;
// Rows of a panel. Its blocks stay in the second-level cache.
constexpr int64_t kPanelRows = 32;
// Blocks of a row that are multiplied before the next row has its turn: the tile's activations for
// so many blocks stay in the first-level cache.
constexpr int64_t kRunBlocks = 4;
// How far ahead of its use a weight is asked for; measured on streams from memory.
constexpr int64_t kPrefetchBytes = 6144;

inline int64_t BlockCount(int64_t cols) { return (cols + kBlock - 1) / kBlock; }

// The parts of a thread's scratch memory.
struct Scratch {
  ActivationBlock* activations;  // [BlockCount(cols)][kTileTokens]
  Accumulator* sums;             // [kPanelRows][kTileTokens]
  WeightBlock* panel;            // [kPanelRows][BlockCount(cols)]

  Scratch(std::byte* bytes, int64_t cols)
      : activations(reinterpret_cast<ActivationBlock*>(bytes)),
        sums(reinterpret_cast<Accumulator*>(activations + BlockCount(cols) * kTileTokens)),
        panel(reinterpret_cast<WeightBlock*>(sums + kPanelRows * kTileTokens)) {}

  static size_t Bytes(int64_t cols) {
    const size_t blocks = static_cast<size_t>(BlockCount(cols));
    return blocks * kTileTokens * sizeof(ActivationBlock) +
           kPanelRows * kTileTokens * sizeof(Accumulator) +
           kPanelRows * blocks * sizeof(WeightBlock);
  }
};

// One row as it lies in the file.
template <class Format>
struct PackedRow {
  const std::byte* bytes;
  const quant::FormatTraits* traits;
  int64_t cols;

  [[gnu::always_inline]] WeightBlock Block(int64_t i) const {
    const int64_t stride = kBlock / traits->block_values * traits->block_bytes;
    const std::byte* block = bytes + i * stride;
    for (int64_t ahead = 0; ahead < stride; ahead += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(block + kPrefetchBytes + ahead), _MM_HINT_T1);
    }
    if ((i + 1) * kBlock <= cols) return Format::Unpack(block, *traits);
    return LastBlock(block);
  }

  // A row that ends inside a block: zero bytes decode to zero scales and offsets.
  [[gnu::noinline]] WeightBlock LastBlock(const std::byte* block) const {
    alignas(64) std::byte padded[kBlock * sizeof(float)] = {};
    std::memcpy(padded, block, static_cast<size_t>(traits->row_bytes(cols % kBlock)));
    return Format::Unpack(padded, *traits);
  }
};

struct UnpackedRow {
  const WeightBlock* blocks;

  [[gnu::always_inline]] const WeightBlock& Block(int64_t i) const { return blocks[i]; }
};

// sums[t] += row . token t over blocks [begin, end); activations [block][kTokens].
template <class Format, int kTokens, class Row>
inline void MultiplyRow(const Row& row, int64_t begin, int64_t end,
                        const ActivationBlock* activations, Accumulator* sums) {
  Accumulator local[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) local[t] = sums[t];
  for (int64_t i = begin; i < end; ++i) {
    const WeightBlock& weights = row.Block(i);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      local[t] = MultiplyAdd<Format>(weights, activations[i * kTokens + t], local[t]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) sums[t] = local[t];
}

template <class Format>
void PrepareTile(const MatMulTask& task, int64_t token_begin, int tokens, ActivationBlock* out) {
  for (int t = 0; t < tokens; ++t) {
    std::byte* record =
        const_cast<std::byte*>(task.activations) + (token_begin + t) * task.activation_stride;
    const ActivationRow row = ActivationRowAt(record, task.cols);
    for (int64_t i = 0; i < BlockCount(task.cols); ++i) {
      out[i * tokens + t] = PrepareBlock<Format>(row, task.cols, i);
    }
  }
}

inline void StoreSums(const MatMulTask& task, int64_t row, int64_t token_begin, int tokens,
                      const Accumulator* sums) {
  for (int t = 0; t < tokens; ++t) {
    float& out = task.out[(token_begin + t) * task.out_stride + row];
    const float sum = Sum(sums[t]);
    out = task.store == Store::kAdd ? out + sum : sum;
  }
}

template <class Format, int kTokens>
void RunFewTokens(const MatMulTask& task, const Scratch& scratch) {
  PrepareTile<Format>(task, 0, kTokens, scratch.activations);
  for (int64_t row = task.row_begin; row < task.row_end; ++row) {
    Accumulator sums[kTokens];
    for (Accumulator& sum : sums) sum = Zero();
    const PackedRow<Format> packed{task.weights + row * task.row_bytes, task.format, task.cols};
    MultiplyRow<Format, kTokens>(packed, 0, BlockCount(task.cols), scratch.activations, sums);
    StoreSums(task, row, 0, kTokens, sums);
  }
}

// A panel of unpacked rows times kTokens tokens from token_begin on.
template <class Format, int kTokens>
void MultiplyPanel(const MatMulTask& task, int64_t row_begin, int64_t rows, int64_t token_begin,
                   const Scratch& scratch) {
  const int64_t blocks = BlockCount(task.cols);
  PrepareTile<Format>(task, token_begin, kTokens, scratch.activations);
  for (int64_t i = 0; i < rows * kTokens; ++i) scratch.sums[i] = Zero();
  for (int64_t begin = 0; begin < blocks; begin += kRunBlocks) {
    const int64_t end = std::min(begin + kRunBlocks, blocks);
    for (int64_t r = 0; r < rows; ++r) {
      MultiplyRow<Format, kTokens>(UnpackedRow{scratch.panel + r * blocks}, begin, end,
                                   scratch.activations, scratch.sums + r * kTokens);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    StoreSums(task, row_begin + r, token_begin, kTokens, scratch.sums + r * kTokens);
  }
}

template <class Format>
void RunManyTokens(const MatMulTask& task, const Scratch& scratch) {
  const int64_t blocks = BlockCount(task.cols);
  for (int64_t row = task.row_begin; row < task.row_end; row += kPanelRows) {
    const int64_t rows = std::min(kPanelRows, task.row_end - row);
    for (int64_t r = 0; r < rows; ++r) {
      const PackedRow<Format> packed{task.weights + (row + r) * task.row_bytes, task.format,
                                     task.cols};
      for (int64_t i = 0; i < blocks; ++i) scratch.panel[r * blocks + i] = packed.Block(i);
    }
    int64_t token = 0;
    for (; token + kTileTokens <= task.tokens; token += kTileTokens) {
      MultiplyPanel<Format, kTileTokens>(task, row, rows, token, scratch);
    }
    for (; token + 2 <= task.tokens; token += 2) {
      MultiplyPanel<Format, 2>(task, row, rows, token, scratch);
    }
    if (token < task.tokens) MultiplyPanel<Format, 1>(task, row, rows, token, scratch);
  }
}

template <class Format>
void RunInt8(const MatMulTask& task) {
  const Scratch scratch(task.scratch.data(), task.cols);
  switch (task.tokens) {
    case 0: return;
    case 1: return RunFewTokens<Format, 1>(task, scratch);
    case 2: return RunFewTokens<Format, 2>(task, scratch);
    case 3: return RunFewTokens<Format, 3>(task, scratch);
    case 4: return RunFewTokens<Format, 4>(task, scratch);
    case 5: return RunFewTokens<Format, 5>(task, scratch);
    case 6: return RunFewTokens<Format, 6>(task, scratch);
    case 7: return RunFewTokens<Format, 7>(task, scratch);
    case 8: return RunFewTokens<Format, 8>(task, scratch);
    default: return RunManyTokens<Format>(task, scratch);
  }
}

// Reads a block through the format's scalar description: serves every quantized format.
struct IntegerCodes {
  alignas(64) int8_t codes[kBlock];
  float scales[kBlock / 16];
  float offsets[kBlock / 16];

  IntegerCodes(const std::byte* bytes, const quant::FormatTraits& traits) {
    for (int64_t begin = 0; begin < kBlock; begin += traits.block_values) {
      quant::IntegerBlock block;
      traits.to_integers(bytes, block);
      const size_t values = static_cast<size_t>(traits.block_values);
      std::memcpy(codes + begin, block.codes, values);
      std::memcpy(scales + begin / 16, block.scales, values / 16 * sizeof(float));
      std::memcpy(offsets + begin / 16, block.offsets, values / 16 * sizeof(float));
      bytes += traits.block_bytes;
    }
  }
};
