// Products of quantized weights with int8 activations, shared by the vector instruction sets. An
// instruction set includes this file in its namespace and target region, after it has defined
//
//   WeightBlock       256 weights of one row: codes, and scales and offsets per 16 values
//   ActivationBlock   256 activations of one token in the matching order
//   Accumulator       a vector of floats, the running sum of one (row, token) pair
//   Zero(), Sum(accumulator), SumEight(accumulators, floats)
//   MultiplyAdd<Codes, tokens>(weights, activations, accumulators)
//   PrepareBlock<Codes>(activation row, cols, block index)
//
// and for every format an unpacker: Codes (the properties of its codes that the functions above
// need to know), kBytes of 256 values (0: what the traits say), Unpack(bytes, traits) ->
// WeightBlock.
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
template <class Unpacker>
struct PackedRow {
  const std::byte* bytes;
  const quant::FormatTraits* traits;
  int64_t cols;

  [[gnu::always_inline]] WeightBlock Block(int64_t i) const {
    const int64_t stride = Unpacker::kBytes > 0 ? Unpacker::kBytes : traits->row_bytes(kBlock);
    const std::byte* block = bytes + i * stride;
    for (int64_t ahead = 0; ahead < stride; ahead += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(block + kPrefetchBytes + ahead), _MM_HINT_T1);
    }
    if ((i + 1) * kBlock <= cols) return Unpacker::Unpack(block, *traits);
    return LastBlock(block);
  }

  // A row that ends inside a block: zero bytes decode to zero scales and offsets.
  [[gnu::noinline]] WeightBlock LastBlock(const std::byte* block) const {
    alignas(64) std::byte padded[kBlock * sizeof(float)] = {};
    std::memcpy(padded, block, static_cast<size_t>(traits->row_bytes(cols % kBlock)));
    return Unpacker::Unpack(padded, *traits);
  }
};

struct UnpackedRow {
  const WeightBlock* blocks;

  [[gnu::always_inline]] const WeightBlock& Block(int64_t i) const { return blocks[i]; }
};

// sums[t] += row . token t over blocks [begin, end); activations [block][kTokens].
template <class Codes, int kTokens, class Row>
inline void MultiplyRow(const Row& row, int64_t begin, int64_t end,
                        const ActivationBlock* activations, Accumulator* sums) {
  Accumulator local[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) local[t] = sums[t];
  for (int64_t i = begin; i < end; ++i) {
    MultiplyAdd<Codes, kTokens>(row.Block(i), activations + i * kTokens, local);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) sums[t] = local[t];
}

// Up to kTokens tokens from `begin` on, in the order of MultiplyRow. What lies in the places of
// missing tokens is multiplied too and never stored.
template <class Codes, int kTokens>
void PrepareTile(const MatMulTask& task, int64_t begin, int64_t tokens, ActivationBlock* out) {
  for (int64_t t = 0; t < tokens; ++t) {
    std::byte* record =
        const_cast<std::byte*>(task.activations) + (begin + t) * task.activation_stride;
    const ActivationRow row = ActivationRowAt(record, task.cols);
    for (int64_t i = 0; i < BlockCount(task.cols); ++i) {
      out[i * kTokens + t] = PrepareBlock<Codes>(row, task.cols, i);
    }
  }
}

template <int kTokens>
inline void StoreSums(const MatMulTask& task, int64_t row, int64_t token_begin, int64_t tokens,
                      const Accumulator* accumulators) {
  float sums[kTokens];
  if constexpr (kTokens == 8) {
    SumEight(accumulators, sums);
  } else {
    for (int t = 0; t < kTokens; ++t) sums[t] = Sum(accumulators[t]);
  }
  float* out = task.out + token_begin * task.out_stride + row;
  for (int64_t t = 0; t < tokens; ++t) {
    *out = task.store == Store::kAdd ? *out + sums[t] : sums[t];
    out += task.out_stride;
  }
}

// Up to kTokens tokens, straight from the packed rows.
template <class Unpacker, int kTokens>
void RunFewTokens(const MatMulTask& task, const Scratch& scratch) {
  using Codes = typename Unpacker::Codes;
  PrepareTile<Codes, kTokens>(task, 0, task.tokens, scratch.activations);
  for (int64_t row = task.row_begin; row < task.row_end; ++row) {
    Accumulator sums[kTokens];
    for (Accumulator& sum : sums) sum = Zero();
    const PackedRow<Unpacker> packed{task.weights + row * task.row_bytes, task.format, task.cols};
    MultiplyRow<Codes, kTokens>(packed, 0, BlockCount(task.cols), scratch.activations, sums);
    StoreSums<kTokens>(task, row, 0, task.tokens, sums);
  }
}

// A panel of unpacked rows times up to kTokens tokens from `token` on.
template <class Codes, int kTokens>
void MultiplyPanel(const MatMulTask& task, int64_t row_begin, int64_t rows, int64_t token,
                   const Scratch& scratch) {
  const int64_t blocks = BlockCount(task.cols);
  const int64_t tokens = std::min<int64_t>(kTokens, task.tokens - token);
  PrepareTile<Codes, kTokens>(task, token, tokens, scratch.activations);
  for (int64_t i = 0; i < rows * kTokens; ++i) scratch.sums[i] = Zero();
  for (int64_t begin = 0; begin < blocks; begin += kRunBlocks) {
    const int64_t end = std::min(begin + kRunBlocks, blocks);
    for (int64_t r = 0; r < rows; ++r) {
      MultiplyRow<Codes, kTokens>(UnpackedRow{scratch.panel + r * blocks}, begin, end,
                                  scratch.activations, scratch.sums + r * kTokens);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    StoreSums<kTokens>(task, row_begin + r, token, tokens, scratch.sums + r * kTokens);
  }
}

template <class Unpacker>
void UnpackPanel(const MatMulTask& task, int64_t row_begin, int64_t rows, WeightBlock* panel) {
  const int64_t blocks = BlockCount(task.cols);
  for (int64_t r = 0; r < rows; ++r) {
    const PackedRow<Unpacker> packed{task.weights + (row_begin + r) * task.row_bytes, task.format,
                                     task.cols};
    for (int64_t i = 0; i < blocks; ++i) panel[r * blocks + i] = packed.Block(i);
  }
}

template <class Unpacker>
void RunManyTokens(const MatMulTask& task, const Scratch& scratch) {
  using Codes = typename Unpacker::Codes;
  for (int64_t row = task.row_begin; row < task.row_end; row += kPanelRows) {
    const int64_t rows = std::min(kPanelRows, task.row_end - row);
    UnpackPanel<Unpacker>(task, row, rows, scratch.panel);
    for (int64_t token = 0; token < task.tokens; token += kTileTokens) {
      if (task.tokens - token > 2) {
        MultiplyPanel<Codes, kTileTokens>(task, row, rows, token, scratch);
      } else {
        MultiplyPanel<Codes, 2>(task, row, rows, token, scratch);
      }
    }
  }
}

template <class Unpacker>
void RunInt8(const MatMulTask& task) {
  const Scratch scratch(task.scratch.data(), task.cols);
  if (task.tokens == 1) return RunFewTokens<Unpacker, 1>(task, scratch);
  if (task.tokens == 2) return RunFewTokens<Unpacker, 2>(task, scratch);
  if (task.tokens <= 4) return RunFewTokens<Unpacker, 4>(task, scratch);
  if (task.tokens <= kTileTokens) return RunFewTokens<Unpacker, kTileTokens>(task, scratch);
  RunManyTokens<Unpacker>(task, scratch);
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
