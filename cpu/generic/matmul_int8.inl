// Products of quantized weights with int8 activations, shared by the vector instruction sets: of
// fewer than 64 tokens, or of any number where an instruction set has no panels. It includes this
// file in its namespace and target region, after it has defined
//
//   WeightBlock       256 weights of one row: codes, and scales and offsets per lane
//   ActivationBlock   256 activations of one token in the matching order
//   Accumulator       a vector of floats, the running sum of one (row, token) pair
//   kRowsAtOnce       rows of few tokens whose blocks lie in registers together
//   kStreams          the same for one token, where each row comes from another part of the weights
//   Zero(), SumEight(accumulators, stride, floats)
//   MultiplyAdd<Codes, tokens>(weights, activations, accumulators)
//   PrepareBlock<Codes>(activation row, cols, block index)
//   ProductCodes<Codes>   what MultiplyAdd must know of Codes, so that formats which differ in
//                     nothing else share its code
//   UnpackerFor<Unpacker, tokens>   how weights are unpacked for so many tokens: by the format's
//                     unpacker, or by another one whose blocks give the same bits
//
// and for every format an unpacker: Codes (the properties of its codes that the functions above
// need to know), kBytes of 256 values (0: what the traits say), Unpack(bytes, traits) ->
// WeightBlock.
//
// Where instructions multiply two rows with two tokens it also defines
//
//   PairTokens(activations, tokens)   rearranges the blocks of an even number of tokens
//   MultiplyAddPair<Codes, tokens>(weights, weights of the next row, activations, accumulators of
//                                  the first row, of the second)
//
// One accumulator per (row, token) pair, one MultiplyAdd per block, blocks ascending, SumEight:
// that fixes the bits, whatever rows and tokens are multiplied together.
//
// Weights stream from memory once. For one token that is all that counts: parts of the rows are
// read side by side, because a core has more reads under way from several ascending streams than
// from one. Otherwise a block of a row is unpacked into registers and multiplied with the tokens of
// a tile, a run of blocks after the other, so that the tile's activations for the run and the sums
// of a group of rows stay in the first-level cache.

constexpr int64_t kBlock = quant::kBlockValuesMax;

// Rows whose sums are held together. Their weights stay in the second-level cache while tile after
// tile passes by.
constexpr int64_t kGroupRows = 16;
// Tokens of a tile, whose sums for a row are in registers.
constexpr int kTileTokens = 8;
// Tokens whose activations are arranged at once.
constexpr int64_t kArrangedTokens = 64;
// Activation blocks of a run: blocks of a row times tokens.
constexpr int64_t kRunBlocks = 64;
// How far ahead of its use a weight is asked for, at least, and into which cache; measured on
// streams from memory. First for one of several streams, then for a single one.
constexpr int64_t kStreamPrefetchBytes = 2304;
constexpr int64_t kPrefetchBytes = 6144;
enum class PrefetchTo { kFirstLevel, kSecondLevel };

template <class Block>
concept Pairable = requires(Block* activations) { PairTokens(activations, 2); };

// The same block of `tokens` tokens, one or an even number.
template <class Block>
inline void PairIfPairable(Block* activations, int64_t tokens) {
  if constexpr (Pairable<Block>) PairTokens(activations, tokens);
}

// Parts of the rows that are read side by side.
constexpr int kPartsMax = std::max(kStreams, kRowsAtOnce);

inline int64_t BlockCount(int64_t cols) { return (cols + kBlock - 1) / kBlock; }

// The parts of a thread's scratch memory.
struct Scratch {
  static constexpr size_t kSums = kTileTokens * std::max<size_t>(kGroupRows, 8 * kPartsMax);

  ActivationBlock* activations;  // tile after tile, each [BlockCount(cols)][tokens of the tile]
  Accumulator* sums;             // [kGroupRows][kTileTokens], or [part of the rows][8][tokens]
  WeightBlock* panel;            // [kGroupRows][BlockCount(cols)]

  Scratch(std::byte* bytes, int64_t cols)
      : activations(reinterpret_cast<ActivationBlock*>(bytes)),
        sums(reinterpret_cast<Accumulator*>(activations + BlockCount(cols) * kArrangedTokens)),
        panel(reinterpret_cast<WeightBlock*>(sums + kSums)) {}

  static size_t Bytes(int64_t cols) {
    const size_t blocks = static_cast<size_t>(BlockCount(cols));
    return blocks * kArrangedTokens * sizeof(ActivationBlock) + kSums * sizeof(Accumulator) +
           kGroupRows * blocks * sizeof(WeightBlock);
  }
};

// Asks for the bytes of a block, which is not read soon.
template <PrefetchTo kPrefetchTo>
[[gnu::always_inline]] inline void PrefetchBlock(const std::byte* block, int64_t bytes) {
  for (int64_t line = 0; line < bytes; line += 64) {
    __builtin_prefetch(block + line, 0, kPrefetchTo == PrefetchTo::kFirstLevel ? 3 : 2);
  }
}

// The bytes of 256 weights.
template <class Unpacker>
int64_t BlockBytes(const quant::FormatTraits& traits) {
  return Unpacker::kBytes > 0 ? Unpacker::kBytes : traits.row_bytes(kBlock);
}

// Unpacks `count` blocks that follow each other and asks for what lies `ahead` bytes further on.
using UnpackFunction = void (*)(const std::byte* bytes, int64_t count, int64_t ahead,
                                const quant::FormatTraits& traits, WeightBlock* out);

// A format's unpacker as a function, for all loops but the streams of few tokens: beside what these
// do with a block a call costs nothing, and they need not be compiled for every format.
template <class Unpacker>
[[gnu::noinline]] void UnpackBlocks(const std::byte* bytes, int64_t count, int64_t ahead,
                                    const quant::FormatTraits& traits, WeightBlock* out) {
  const int64_t stride = BlockBytes<Unpacker>(traits);
  for (int64_t i = 0; i < count; ++i) {
    const std::byte* block = bytes + i * stride;
    PrefetchBlock<PrefetchTo::kSecondLevel>(block + ahead, stride);
    new (out + i) WeightBlock(Unpacker::Unpack(block, traits));  // GCC copies what is assigned
  }
}

// The end of a row that ends inside a block: zero bytes decode to zero scales and offsets.
[[gnu::noinline]] inline void UnpackEnd(UnpackFunction unpack, const std::byte* bytes,
                                        int64_t values, const quant::FormatTraits& traits,
                                        WeightBlock* out) {
  alignas(64) std::byte padded[kBlock * sizeof(float)] = {};
  std::memcpy(padded, bytes, static_cast<size_t>(traits.row_bytes(values)));
  unpack(padded, 1, 0, traits, out);
}

// Rows of blocks as they lie in the file, row_bytes apart, for the streams of few tokens.
template <class Unpacker>
struct StreamedRows {
  using Codes = ProductCodes<typename Unpacker::Codes>;

  const std::byte* bytes;
  int64_t row_bytes;
  const quant::FormatTraits* traits;
  int64_t cols;

  // Block `i` of a row, all of which exists.
  [[gnu::always_inline]] WeightBlock Whole(int64_t row, int64_t i) const {
    const int64_t stride = BlockBytes<Unpacker>(*traits);
    const std::byte* block = bytes + row * row_bytes + i * stride;
    PrefetchBlock<PrefetchTo::kFirstLevel>(block + kStreamPrefetchBytes, stride);
    return Unpacker::Unpack(block, *traits);
  }

  WeightBlock Partial(int64_t row, int64_t i) const {
    WeightBlock end;
    UnpackEnd(UnpackBlocks<Unpacker>, bytes + row * row_bytes + i * BlockBytes<Unpacker>(*traits),
              cols % kBlock, *traits, &end);
    return end;
  }
};

// How the rows of a format's blocks are read.
struct RowReader {
  UnpackFunction unpack;
  int64_t block_bytes;
  const quant::FormatTraits* traits;
  int64_t cols;

  template <class Unpacker>
  static RowReader Of(const MatMulTask& task) {
    return {UnpackBlocks<Unpacker>, BlockBytes<Unpacker>(*task.format), task.format, task.cols};
  }

  // Blocks [begin, end) of a row; those `ahead` bytes further on are asked for.
  void Read(const std::byte* row, int64_t begin, int64_t end, int64_t ahead,
            WeightBlock* out) const {
    const int64_t whole = std::min(end, cols / kBlock);
    unpack(row + begin * block_bytes, whole - begin, ahead, *traits, out);
    if (whole == end) return;
    UnpackEnd(unpack, row + whole * block_bytes, cols % kBlock, *traits, out + (whole - begin));
  }
};

// Rows that have been unpacked; CodesType: as ProductCodes gives it.
template <class CodesType>
struct UnpackedRows {
  using Codes = CodesType;

  const WeightBlock* blocks;
  int64_t cols;

  [[gnu::always_inline]] const WeightBlock& Whole(int64_t row, int64_t i) const {
    return blocks[row * BlockCount(cols) + i];
  }
  const WeightBlock& Partial(int64_t row, int64_t i) const { return Whole(row, i); }
};

// sums[t] += weights . activations[t], for the ends of rows: a call, so that MultiplyAdd does not
// stand twice in every loop.
template <class Codes>
[[gnu::noinline, gnu::noclone]] void MultiplyAddEnd(const WeightBlock& weights,
                                                    const ActivationBlock* activations, int tokens,
                                                    Accumulator* sums) {
  constexpr int kStep = Pairable<ActivationBlock> ? 2 : 1;
  for (int t = 0; t + kStep <= tokens; t += kStep) {
    MultiplyAdd<Codes, kStep>(weights, activations + t, sums + t);
  }
  if (tokens % kStep != 0) MultiplyAdd<Codes, 1>(weights, activations, sums);
}

// sums[(row + r) * kStride + t] += rows[row + r] . token t, over blocks [begin, end), with all
// kRows * kTokens sums in registers; activations [block][kTokens].
template <int kRows, int kTokens, int kStride, class Rows>
inline void MultiplyRows(const Rows& rows, int64_t row, int64_t begin, int64_t end,
                         const ActivationBlock* activations, Accumulator* sums) {
  using Codes = typename Rows::Codes;
  sums += row * kStride;
  Accumulator local[kRows][kTokens];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) local[r][t] = begin == 0 ? Zero() : sums[r * kStride + t];
  }
  const int64_t whole = std::min(end, rows.cols / kBlock);
  for (int64_t i = begin; i < whole; ++i) {
    WeightBlock weights[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) weights[r] = rows.Whole(row + r, i);
    if constexpr (Pairable<ActivationBlock> && kRows == 2) {
      MultiplyAddPair<Codes, kTokens>(weights[0], weights[1], activations + i * kTokens, local[0],
                                      local[1]);
    } else {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        MultiplyAdd<Codes, kTokens>(weights[r], activations + i * kTokens, local[r]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) sums[r * kStride + t] = local[r][t];
  }
  if (whole == end) return;
  for (int r = 0; r < kRows; ++r) {
    MultiplyAddEnd<Codes>(rows.Partial(row + r, whole), activations + whole * kTokens, kTokens,
                          sums + r * kStride);
  }
}

// Rows whose blocks are multiplied with so many tokens together.
constexpr int RowsAtOnce(int tokens) {
  if (tokens == 1) return kStreams;
  return tokens < kTileTokens || Pairable<ActivationBlock> ? kRowsAtOnce : 1;
}

// out[r] = (or +=) the sums of `rows` accumulators, `stride` apart.
[[gnu::noinline]] inline void StoreRows(const Accumulator* accumulators, int64_t stride,
                                        int64_t rows, Store store, float* out) {
  for (int64_t row = 0; row < rows; row += 8) {
    float sums[8];
    SumEight(accumulators + row * stride, stride, sums);
    for (int64_t r = row; r < std::min(row + 8, rows); ++r) {
      out[r] = store == Store::kAdd ? out[r] + sums[r - row] : sums[r - row];
    }
  }
}

// A group of rows and a tile of tokens.
struct Tile {
  int64_t row, rows;
  int64_t token, tokens;
  const ActivationBlock* activations;  // [BlockCount(cols)][tokens, rounded up]
};

template <int kTokens, class Codes>
void MultiplyGroup(const MatMulTask& task, const UnpackedRows<Codes>& rows, const Tile& tile,
                   Accumulator* sums) {
  constexpr int kRows = std::min(RowsAtOnce(kTokens), kRowsAtOnce);
  constexpr int64_t kRun = kRunBlocks / kTokens;
  const int64_t blocks = BlockCount(task.cols);
  for (int64_t begin = 0; begin < blocks; begin += kRun) {
    const int64_t end = std::min(begin + kRun, blocks);
    int64_t r = 0;
    for (; r + kRows <= tile.rows; r += kRows) {
      MultiplyRows<kRows, kTokens, kTileTokens>(rows, r, begin, end, tile.activations, sums);
    }
    for (; r < tile.rows; ++r) {
      MultiplyRows<1, kTokens, kTileTokens>(rows, r, begin, end, tile.activations, sums);
    }
  }
  for (int64_t t = 0; t < tile.tokens; ++t) {
    StoreRows(sums + t, kTileTokens, tile.rows, task.store,
              task.out + (tile.token + t) * task.out_stride + tile.row);
  }
}

// The number of tokens that `tokens` are multiplied as.
inline int64_t RoundUpTokens(int64_t tokens) {
  return tokens <= 2 ? tokens : tokens <= 4 ? 4 : kTileTokens;
}

// Not made part of its callers, one for each format, who share it.
template <class Codes>
[[gnu::noinline]] void MultiplyGroup(const MatMulTask& task, const UnpackedRows<Codes>& rows,
                                     const Tile& tile, Accumulator* sums) {
  switch (RoundUpTokens(tile.tokens)) {
    case 1: return MultiplyGroup<1>(task, rows, tile, sums);
    case 2: return MultiplyGroup<2>(task, rows, tile, sums);
    case 4: return MultiplyGroup<4>(task, rows, tile, sums);
    default: return MultiplyGroup<kTileTokens>(task, rows, tile, sums);
  }
}

// Tokens [begin, end), tile after tile; the places of missing tokens hold zeros.
template <class Codes>
void ArrangeTiles(const MatMulTask& task, int64_t begin, int64_t end, ActivationBlock* out) {
  const int64_t blocks = BlockCount(task.cols);
  for (int64_t tile = begin; tile < end; tile += kTileTokens) {
    const int64_t tokens = std::min<int64_t>(kTileTokens, end - tile);
    const int64_t rounded = RoundUpTokens(tokens);
    for (int64_t t = 0; t < rounded; ++t) {
      const int64_t token = std::min(tile + t, end - 1);
      std::byte* record = const_cast<std::byte*>(task.activations) + token * task.activation_stride;
      const ActivationRow row = ActivationRowAt(record, task.cols);
      for (int64_t i = 0; i < blocks; ++i) {
        out[i * rounded + t] =
            t < tokens ? PrepareBlock<Codes>(row, task.cols, i) : ActivationBlock{};
      }
    }
    for (int64_t i = 0; i < blocks; ++i) PairIfPairable(out + i * rounded, rounded);
    out += blocks * kTileTokens;
  }
}

// The same into the scratch, unless they lie there already.
template <class Codes>
void PrepareTiles(const MatMulTask& task, int64_t begin, int64_t end, const Scratch& scratch) {
  static constexpr char kOrder = 0;  // has another address for each Codes
  const ArrangedActivations wanted = {&kOrder, begin, end};
  if (task.arranged != nullptr && *task.arranged == wanted) return;
  ArrangeTiles<Codes>(task, begin, end, scratch.activations);
  if (task.arranged != nullptr) *task.arranged = wanted;
}

// Unpacks `count` rows from `row` on. It asks for rows of a later group, at the place where this
// group's rows are read.
inline void UnpackRows(const MatMulTask& task, const RowReader& reader, int64_t row, int64_t count,
                       WeightBlock* panel) {
  const int64_t step = kGroupRows * task.row_bytes;
  const int64_t ahead = (kPrefetchBytes + step - 1) / step * step;
  const int64_t blocks = BlockCount(task.cols);
  for (int64_t r = 0; r < count; ++r) {
    reader.Read(task.weights + (row + r) * task.row_bytes, 0, blocks, ahead, panel + r * blocks);
  }
}

// All rows times the tokens [begin, end), whose tiles pass by rows that have been unpacked.
template <class Codes>
void RunPass(const MatMulTask& task, const RowReader& reader, int64_t begin, int64_t end,
             const Scratch& scratch) {
  PrepareTiles<Codes>(task, begin, end, scratch);
  const UnpackedRows<ProductCodes<Codes>> unpacked{scratch.panel, task.cols};
  for (int64_t row = task.row_begin; row < task.row_end; row += kGroupRows) {
    const int64_t row_count = std::min(kGroupRows, task.row_end - row);
    UnpackRows(task, reader, row, row_count, scratch.panel);
    for (int64_t token = begin; token < end; token += kTileTokens) {
      const Tile tile{row, row_count, token, std::min<int64_t>(kTileTokens, end - token),
                      scratch.activations + (token - begin) * BlockCount(task.cols)};
      MultiplyGroup(task, unpacked, tile, scratch.sums);
    }
  }
}

// A tile of tokens from the first on, all there are: parts of the rows side by side, and the rows
// that are left over.
template <class Unpacker, int kTokens>
void RunStreams(const MatMulTask& task, const Scratch& scratch) {
  constexpr int kRows = RowsAtOnce(kTokens);
  constexpr int kParts = kTokens == 1 ? kStreams : kPartsMax;
  static_assert(kParts % kRows == 0);
  PrepareTiles<typename Unpacker::Codes>(task, 0, task.tokens, scratch);
  const int64_t blocks = BlockCount(task.cols);
  const int64_t part = (task.row_end - task.row_begin) / kParts;
  for (int64_t row = 0; row < part; row += 8) {
    const int64_t rows = std::min<int64_t>(8, part - row);
    // The sums of eight rows of a part lie side by side.
    for (int64_t begin = 0; begin < blocks; begin += kRunBlocks / kTokens) {
      const int64_t end = std::min(begin + kRunBlocks / kTokens, blocks);
      for (int64_t r = 0; r < rows; ++r) {
        for (int p = 0; p < kParts; p += kRows) {
          const StreamedRows<Unpacker> streams{
              task.weights + (task.row_begin + p * part + row + r) * task.row_bytes,
              part * task.row_bytes, task.format, task.cols};
          MultiplyRows<kRows, kTokens, 8 * kTokens>(streams, 0, begin, end, scratch.activations,
                                                    scratch.sums + (8 * p + r) * kTokens);
        }
      }
    }
    for (int64_t t = 0; t < task.tokens; ++t) {
      for (int64_t p = 0; p < kParts; ++p) {
        StoreRows(scratch.sums + 8 * p * kTokens + t, kTokens, rows, task.store,
                  task.out + t * task.out_stride + task.row_begin + p * part + row);
      }
    }
  }
  MatMulTask rest = task;
  rest.row_begin += part * kParts;
  if (rest.row_begin == rest.row_end) return;
  RunPass<typename Unpacker::Codes>(rest, RowReader::Of<Unpacker>(task), 0, task.tokens, scratch);
}

template <class Unpacker>
void RunInt8(const MatMulTask& task) {
  const Scratch scratch(task.scratch.data(), task.cols);
  if (task.tokens <= kTileTokens) {
    switch (RoundUpTokens(task.tokens)) {
      case 1: return RunStreams<UnpackerFor<Unpacker, 1>, 1>(task, scratch);
      case 2: return RunStreams<UnpackerFor<Unpacker, 2>, 2>(task, scratch);
      case 4: return RunStreams<UnpackerFor<Unpacker, 4>, 4>(task, scratch);
      default: return RunStreams<UnpackerFor<Unpacker, kTileTokens>, kTileTokens>(task, scratch);
    }
  }
  using ForPass = UnpackerFor<Unpacker, kArrangedTokens>;
  const RowReader reader = RowReader::Of<ForPass>(task);
  for (int64_t begin = 0; begin < task.tokens; begin += kArrangedTokens) {
    RunPass<typename ForPass::Codes>(task, reader, begin,
                                     std::min(begin + kArrangedTokens, task.tokens), scratch);
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
