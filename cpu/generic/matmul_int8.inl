// Products of quantized weights with int8 activations, shared by the vector instruction sets: of
// fewer than 64 tokens, or of any number where an instruction set has no panels. It includes this
// file after int8_kernels.inl.
//
// Weights stream from memory once. Few tokens read parts of the rows side by side, because a core
// has more reads under way from several ascending streams than from one. One token multiplies
// blocks as they are unpacked, and so do up to kStreamedTokens where that takes little time; where
// it takes long, some blocks of a row at a time are unpacked into the first-level cache for two to
// eight tokens. Where kStreamedTokens is a tile of eight, two tiles that are nearly full read parts
// one after the other. More tokens are cut into tiles of eight, which pass by 16 unpacked rows, a
// run of blocks after the other, so that the tile's activations for the run and the sums of the
// rows stay in the first-level cache.

// The room for `tokens` in a tile, and the number that they are multiplied as where they are not
// counted.
constexpr int64_t RoundUpTokens(int64_t tokens) {
  if (tokens <= 2 || tokens == 4) return tokens;
  // Turns of kPairTokens, of which one token may be missing.
  if (tokens > kTileTokens) return tokens + (kPairTokens > 0 && (tokens + 1) % kPairTokens == 0);
  return tokens == 3 && !kCountTokens ? 4 : kTileTokens;
}

// The kernel that multiplies a tile of tokens with unpacked rows, `rows` rows at a time.
struct TileKernel {
  void (*multiply)(const UnpackedRows& rows, const ActivationBlock* activations, Accumulator* sums);
  int64_t rows;

  template <class Codes, int kTokens>
  static TileKernel Of(int64_t /*tokens*/) {
    constexpr int kRows = std::min(RowsAtOnce<kTokens>(), kRowsAtOnce);
    return {MultiplyRows<ProductCodes<Codes>, kRows, kTokens>, kRows};
  }

  // The kernel for the last tile, which may be smaller than the others.
  template <class Codes>
  static TileKernel ForAny(int64_t tokens) {
    switch (RoundUpTokens(tokens)) {
      case 1: return Of<Codes, 1>(tokens);
      case 2: return Of<Codes, 2>(tokens);
      case 4: return Of<Codes, 4>(tokens);
      default: return Of<Codes, kTileTokens>(tokens);
    }
  }
};

// MultiplyStreams for a format and a number of tokens.
using StreamFunction = void (*)(const StreamedRows& streams, const quant::FormatTraits& traits,
                                const ActivationBlock* activations, Accumulator* sums);

// The numbers of tokens for which a format's rows are multiplied as they are unpacked. For formats
// that take long to unpack it costs little to put the blocks of several tokens into memory first.
enum class Streams { kEveryCount, kOneToken };

// The unit of a token that begins with block `i`; Codes: as ActivationCodes gives it.
template <class Codes>
[[gnu::noinline]] void ArrangeActivations(const ActivationRow& row, int64_t cols, int64_t i,
                                          ActivationBlock* out, [[maybe_unused]] int64_t stride) {
  if constexpr (UnitBlocks<Codes>() == 1) {
    new (out) ActivationBlock(PrepareBlock<Codes>(row, cols, i));
  } else {
    PrepareUnit<Codes>(row, cols, i, out, stride);
  }
}

// The traits of a format's blocks that the loops below need, for some number of tokens.
struct BlockFormat {
  RowReader reader;
  StreamFunction stream;  // may be null
  TileKernel (*kernel)(int64_t tokens);
  void (*arrange)(const ActivationRow& row, int64_t cols, int64_t i, ActivationBlock* out,
                  int64_t stride);
  const void* order;  // has another address for each `arrange`

  // kTokens is a result of RoundUpTokens for up to kTileTokens. kTileTokens also stands for more
  // tokens, and kStreamedTokens for numbers between the two where tokens are streamed.
  template <class Format, Streams kStreamed, int kTokens>
  static BlockFormat Of(const MatMulTask& task) {
    using Unpacker = UnpackerFor<Format, kTokens>;
    using Codes = CodesFor<Unpacker, kTokens>;
    BlockFormat format = {
        {UnpackerOf<Unpacker, Codes>(), BlockBytes<Unpacker>(*task.format), task.format, task.cols,
         UnitBlocks<Codes>(), UnitsShareScales<Codes>() ? UnitBlocks<Codes>() : 1},
        nullptr,
        TileKernel::Of<Codes, std::min(kTokens, kTileTokens)>,
        ArrangeActivations<ActivationCodes<Codes>>,
        OrderOf<ActivationCodes<Codes>>()};
    if constexpr (kTokens == 1 || kStreamed == Streams::kEveryCount) {
      // The unpacker of any format does not say whether rows have a factor.
      if (HasRowFactor<Unpacker> || task.format->head_bytes == 0) {
        format.stream = MultiplyStreams<Unpacker, kTokens>;
      }
    }
    if constexpr (kTokens >= kTileTokens) format.kernel = TileKernel::ForAny<Codes>;
    return format;
  }

  template <class Unpacker, class Codes>
  static UnpackFunction UnpackerOf() {
    if constexpr (UnitBlocks<Codes>() == 1)
      return UnpackBlocks<Unpacker>;
    else
      return UnpackUnits<Unpacker, Codes>;
  }

  template <class Codes>
  static const void* OrderOf() {
    static constexpr char kOrder = 0;
    return &kOrder;
  }
};

// Rows whose sums are held together. Their weights stay in the second-level cache while tile after
// tile passes by.
constexpr int64_t kGroupRows = 16;
// Tokens whose activations are arranged at once.
constexpr int64_t kArrangedTokens = 64;
// Blocks of a row that at most kTileTokens pass at once: their activations are 28 KiB, or 14 in a
// first-level cache of 32 KiB, so that the weights and the sums find room beside them.
inline int64_t RunBlocks(int64_t room) {
  return (FirstLevelDataBytes() >= 48 * 1024 ? 64 : 32) / room;
}
// Blocks of a row that more tokens pass at once: all that fit the first-level cache beside their
// sums with `rows` rows.
inline int64_t RunBlocks(int64_t room, int64_t rows, int64_t unit) {
  const int64_t sums = rows * static_cast<int64_t>(sizeof(Accumulator));
  const int64_t block = static_cast<int64_t>(sizeof(ActivationBlock));
  const int64_t bytes = std::max<int64_t>(FirstLevelDataBytes(), 32 * 1024);  // 0: not known
  return std::max((bytes / room - sums) / block / unit, int64_t{1}) * unit;
}
// Blocks of a row that are unpacked at a time for two to eight tokens.
constexpr int64_t kUnpackedBlocks = 8;
// How far ahead of its use a weight is asked for, at least, where rows are read one after the
// other; measured on reads from memory.
constexpr int64_t kPrefetchBytes = 6144;
// Parts of the rows that are read side by side: of more tokens than a tile has fewer, so that less
// of the first-level cache holds sums.
constexpr int kPartsMax = std::max(kStreams, kRowsAtOnce);
constexpr int kPartsOfMany = std::min(kPartsMax, 2);
inline int64_t PartsFor(int64_t tokens) {
  if (tokens == 1) return kStreams;
  return tokens > kTileTokens ? kPartsOfMany : kPartsMax;
}

static_assert(kRowsAtOnce * kUnpackedBlocks <= kGroupRows);

// The parts of a thread's scratch memory.
struct Scratch {
  static constexpr size_t kSums = std::max<size_t>(
      {kTileTokens * kGroupRows, kTileTokens * 8 * kPartsMax, kStreamedTokens * 8 * kPartsOfMany});

  ActivationBlock* activations;  // tile after tile, each [BlockRoom(cols)][tokens of the tile]
  Accumulator* sums;             // [kGroupRows][kTileTokens], or [8 rows][parts][tokens of a tile]
  WeightBlock* panel;            // [kGroupRows][BlockRoom(cols)], or [rows][kUnpackedBlocks]
  std::byte* ends;               // [8 rows][parts] of rows that end inside a block

  Scratch(std::byte* bytes, int64_t cols)
      : activations(reinterpret_cast<ActivationBlock*>(bytes)),
        sums(reinterpret_cast<Accumulator*>(activations + BlockRoom(cols) * kArrangedTokens)),
        panel(reinterpret_cast<WeightBlock*>(sums + kSums)),
        ends(reinterpret_cast<std::byte*>(panel + kGroupRows * BlockRoom(cols))) {}

  static size_t Bytes(int64_t cols) {
    const size_t blocks = static_cast<size_t>(BlockRoom(cols));
    return blocks * kArrangedTokens * sizeof(ActivationBlock) + kSums * sizeof(Accumulator) +
           kGroupRows * blocks * sizeof(WeightBlock) + 8 * kPartsMax * RowReader::kEndMax;
  }
};

// out[r] = (or +=) the sums of `rows` accumulators, `stride` apart.
inline void StoreRows(const Accumulator* accumulators, int64_t stride, int64_t rows, Store store,
                      float* out) {
  for (int64_t row = 0; row < rows; row += 8) {
    float sums[8];
    SumEight(accumulators + row * stride, stride, sums);
    const bool whole = rows - row >= 8;  // a loop of eight is a vector
    if (store == Store::kSet) {
      std::memcpy(out + row, sums,
                  whole ? sizeof(sums) : static_cast<size_t>(rows - row) * sizeof(float));
    } else if (whole) {
      for (int64_t r = 0; r < 8; ++r) out[row + r] += sums[r];
    } else {
      for (int64_t r = 0; r < rows - row; ++r) out[row + r] += sums[r];
    }
  }
}

// Tokens [begin, end) into the scratch, tile after tile of at most `tile_tokens`, unless they lie
// there already; the places of missing tokens hold zeros.
inline void ArrangeTiles(const MatMulTask& task, const BlockFormat& format, int64_t begin,
                         int64_t end, int64_t tile_tokens, ActivationBlock* out) {
  const ArrangedActivations wanted = {format.order, begin, end, tile_tokens};
  if (task.arranged != nullptr && *task.arranged == wanted) return;
  const int64_t blocks = BlockCount(task.cols);
  const int64_t unit = format.reader.unit;
  for (int64_t tile = begin; tile < end; tile += tile_tokens) {
    const int64_t tokens = std::min(tile_tokens, end - tile);
    const int64_t rounded = RoundUpTokens(tokens);
    for (int64_t t = 0; t < rounded; ++t) {
      const int64_t token = std::min(tile + t, end - 1);
      std::byte* record = const_cast<std::byte*>(task.activations) + token * task.activation_stride;
      const ActivationRow row = ActivationRowAt(record, task.cols);
      for (int64_t i = 0; i < blocks; i += unit) {
        ActivationBlock* block = out + i * rounded + t;
        if (t < tokens) {
          format.arrange(row, task.cols, i, block, rounded);
          continue;
        }
        for (int64_t j = 0; j < unit; ++j) {
          std::memset(static_cast<void*>(block + j * rounded), 0, sizeof(*block));
        }
      }
    }
    for (int64_t i = 0; i < blocks; ++i) PairIfPairable(out + i * rounded, rounded);
    out += BlockRoom(task.cols) * tile_tokens;
  }
  if (task.arranged != nullptr) *task.arranged = wanted;
}

// Some rows and a tile of tokens.
struct Tile {
  int64_t row, rows;
  int64_t token, tokens;
  const ActivationBlock* activations;  // [BlockRoom(cols)][tokens, rounded up]
};

// The unpacked rows of scratch.panel times a tile.
inline void MultiplyTileOfRows(const MatMulTask& task, const TileKernel& kernel, const Tile& tile,
                               const Scratch& scratch) {
  const int64_t run = RunBlocks(RoundUpTokens(tile.tokens));
  const int64_t blocks = BlockCount(task.cols);
  for (int64_t begin = 0; begin < blocks; begin += run) {
    const int64_t count = std::min(run, blocks - begin);
    for (int64_t r = 0; r < tile.rows; r += kernel.rows) {
      // A last row without a second one is its own; nobody reads the sums of that.
      const int64_t room = BlockRoom(task.cols);
      const int64_t stride = r + kernel.rows <= tile.rows ? room : 0;
      kernel.multiply({scratch.panel + r * room + begin, stride, begin, count, tile.tokens},
                      tile.activations, scratch.sums + r * kTileTokens);
    }
  }
  for (int64_t t = 0; t < tile.tokens; ++t) {
    StoreRows(scratch.sums + t, kTileTokens, tile.rows, task.store,
              task.out + (tile.token + t) * task.out_stride + tile.row);
  }
}

// Unpacks `count` rows from `row` on. It asks for rows of a later group, at the place where this
// group's rows are read.
inline void UnpackRows(const MatMulTask& task, const RowReader& reader, int64_t row, int64_t count,
                       WeightBlock* panel) {
  const int64_t step = kGroupRows * task.row_bytes;
  const Ahead ahead = {(kPrefetchBytes + step - 1) / step * step, PrefetchTo::kSecondLevel};
  for (int64_t r = 0; r < count; ++r) {
    reader.Read(task.weights + (row + r) * task.row_bytes, 0, BlockCount(task.cols), ahead,
                panel + r * BlockRoom(task.cols));
  }
}

// All rows times the tokens [begin, end), whose tiles pass by rows that have been unpacked.
inline void RunPass(const MatMulTask& task, const BlockFormat& format, int64_t begin, int64_t end,
                    const Scratch& scratch) {
  ArrangeTiles(task, format, begin, end, kTileTokens, scratch.activations);
  for (int64_t row = task.row_begin; row < task.row_end; row += kGroupRows) {
    const int64_t row_count = std::min(kGroupRows, task.row_end - row);
    UnpackRows(task, format.reader, row, row_count, scratch.panel);
    for (int64_t token = begin; token < end; token += kTileTokens) {
      const Tile tile{row, row_count, token, std::min<int64_t>(kTileTokens, end - token),
                      scratch.activations + (token - begin) * BlockRoom(task.cols)};
      MultiplyTileOfRows(task, format.kernel(tile.tokens), tile, scratch);
    }
  }
}

// From a row's end to the next one's in Scratch::ends; `end` is behind the last block.
inline int64_t EndStride(const RowReader& reader, int64_t whole, int64_t end) {
  return (((end - whole) * reader.block_bytes) + 63) / 64 * 64;
}

// Writes zeros behind the bytes that rows end with; the zeros stay when ends of rows are copied
// there.
inline void ClearEnds(const RowReader& reader, const Scratch& scratch) {
  const int64_t end = BlockCount(reader.cols);
  const int64_t whole = reader.WholeBlocks(end);
  if (whole == end) return;
  std::memset(scratch.ends, 0, static_cast<size_t>(8 * kPartsMax * EndStride(reader, whole, end)));
}

// How the end of a row that ends inside a block is read: where it lies, with the bytes that follow,
// which meet activations of zero, or from a copy with zeros behind it.
enum class RowEnds { kInPlace, kCopied };

// All tokens times rows as they lie in the file, blocks [streams.begin, end) of them.
inline void MultiplyStreamed(const BlockFormat& format, StreamedRows streams, int64_t end,
                             RowEnds ends, const ActivationBlock* activations,
                             const Scratch& scratch) {
  const RowReader& reader = format.reader;
  const int64_t whole = ends == RowEnds::kInPlace ? end : reader.WholeBlocks(end);
  const std::byte* rows = streams.blocks;
  float factors[8 * kPartsMax];
  streams.factors = factors;
  if (reader.traits->head_bytes > 0) streams.heads = rows;
  streams.blocks += reader.traits->head_bytes + streams.begin * reader.block_bytes;
  streams.count = whole - streams.begin;
  format.stream(streams, *reader.traits, activations, scratch.sums);
  if (whole == end) return;
  const int64_t bytes = reader.EndBytes(whole);
  const int64_t stride = EndStride(reader, whole, end);
  std::byte* copy = scratch.ends;
  for (int64_t r = 0; r < streams.rows; ++r) {
    for (int64_t p = 0; p < streams.parts; ++p, copy += stride) {
      reader.CopyEnd(rows + r * streams.row_bytes + p * streams.part_bytes, whole, bytes, copy);
    }
  }
  streams.blocks = scratch.ends;
  streams.heads = nullptr;
  streams.row_bytes = streams.parts * stride;
  streams.part_bytes = stride;
  streams.begin = whole;
  streams.count = end - whole;
  format.stream(streams, *reader.traits, activations, scratch.sums);
}

// All tokens times rows, some blocks of each row unpacked first; sums[row][part][kTileTokens].
inline void MultiplyUnpacked(const BlockFormat& format, const StreamedRows& streams, int64_t end,
                             const TileKernel& kernel, const ActivationBlock* activations,
                             const Scratch& scratch) {
  const Ahead ahead = {StreamPrefetchBytes(format.reader.block_bytes), PrefetchTo::kFirstLevel};
  Accumulator* sums = scratch.sums;
  for (int64_t row = 0; row < streams.rows; ++row) {
    for (int64_t p = 0; p < streams.parts; p += kernel.rows, sums += kernel.rows * kTileTokens) {
      const std::byte* first = streams.blocks + row * streams.row_bytes + p * streams.part_bytes;
      for (int64_t begin = streams.begin; begin < end; begin += kUnpackedBlocks) {
        const int64_t stop = std::min(begin + kUnpackedBlocks, end);
        for (int64_t r = 0; r < kernel.rows; ++r) {
          format.reader.Read(first + r * streams.part_bytes, begin, stop, ahead,
                             scratch.panel + r * kUnpackedBlocks);
        }
        kernel.multiply({scratch.panel, kUnpackedBlocks, begin, stop - begin, streams.tokens},
                        activations, sums);
      }
    }
  }
}

// scratch.sums = at most eight rows from `row` on, of each of `parts` parts of `part` rows, times
// the tokens of a tile.
inline void SumParts(const MatMulTask& task, const BlockFormat& format, int64_t part, int64_t parts,
                     const Tile& tile, RowEnds ends, const Scratch& scratch) {
  const int64_t blocks = BlockCount(task.cols);
  const int64_t room = RoundUpTokens(tile.tokens);
  const int64_t run =
      tile.tokens > kTileTokens ? RunBlocks(room, 8 * parts, format.reader.unit) : RunBlocks(room);
  for (int64_t begin = 0; begin < blocks; begin += run) {
    const StreamedRows streams = {task.weights + tile.row * task.row_bytes,
                                  nullptr,
                                  nullptr,
                                  task.row_bytes,
                                  part * task.row_bytes,
                                  tile.rows,
                                  parts,
                                  begin,
                                  0,
                                  tile.tokens,
                                  room};
    const int64_t end = std::min(begin + run, blocks);
    if (format.stream != nullptr) {
      MultiplyStreamed(format, streams, end, ends, tile.activations, scratch);
    } else {
      MultiplyUnpacked(format, streams, end, format.kernel(tile.tokens), tile.activations, scratch);
    }
  }
}

// Whether a sum of at most eight is NaN.
inline bool AnyNan(const Accumulator* accumulators, int64_t stride, int64_t rows) {
  float sums[8];
  SumEight(accumulators, stride, sums);
  bool nan = false;
  for (int64_t r = 0; r < 8; ++r) nan |= r < rows && std::isnan(sums[r]);
  return nan;
}

// At most eight rows from `row` on, of each of some parts of `part` rows, times the tokens of a
// tile.
inline void MultiplyParts(const MatMulTask& task, const BlockFormat& format, int64_t part,
                          const Tile& tile, const Scratch& scratch) {
  const int64_t stride = format.stream != nullptr ? RoundUpTokens(tile.tokens) : kTileTokens;
  const int64_t parts = (task.row_end - task.row_begin) / part;
  const auto for_each = [&](const auto& each) {
    for (int64_t t = 0; t < tile.tokens; ++t) {
      for (int64_t p = 0; p < parts; ++p) each(scratch.sums + p * stride + t, t, p);
    }
  };
  // The last row has no other one behind it. Bytes that are none of a row's own can make its sum
  // NaN, if they hold a scale that is none or infinite, but nothing else.
  const bool in_place = format.stream != nullptr && format.reader.EndsInPlace() &&
                        tile.row + tile.rows < task.row_begin + part;
  SumParts(task, format, part, parts, tile, in_place ? RowEnds::kInPlace : RowEnds::kCopied,
           scratch);
  if (in_place) {
    bool nan = false;
    for_each([&](const Accumulator* sums, int64_t, int64_t) {
      nan |= AnyNan(sums, parts * stride, tile.rows);
    });
    if (nan) SumParts(task, format, part, parts, tile, RowEnds::kCopied, scratch);
  }
  for_each([&](const Accumulator* sums, int64_t t, int64_t p) {
    StoreRows(sums, parts * stride, tile.rows, task.store,
              task.out + (tile.token + t) * task.out_stride + p * part + tile.row);
  });
}

// All tokens, tile after tile: parts of the rows side by side, and the rows that are left over.
inline void RunStreams(const MatMulTask& task, const BlockFormat& format, const Scratch& scratch) {
  const int64_t tile_tokens = task.tokens > kTileTokens ? StreamedTokens() : kTileTokens;
  ArrangeTiles(task, format, 0, task.tokens, tile_tokens, scratch.activations);
  if (format.stream != nullptr) ClearEnds(format.reader, scratch);
  const int64_t parts = PartsFor(task.tokens);
  const int64_t part = (task.row_end - task.row_begin) / parts;
  MatMulTask even = task;
  even.row_end = task.row_begin + part * parts;
  for (int64_t row = 0; row < part; row += 8) {
    for (int64_t token = 0; token < task.tokens; token += tile_tokens) {
      const Tile tile{task.row_begin + row, std::min<int64_t>(8, part - row), token,
                      std::min(tile_tokens, task.tokens - token),
                      scratch.activations + token * BlockRoom(task.cols)};
      MultiplyParts(even, format, part, tile, scratch);
    }
  }
  MatMulTask rest = task;
  rest.row_begin = even.row_end;
  if (rest.row_begin < rest.row_end) RunPass(rest, format, 0, task.tokens, scratch);
}

// Whether `tokens` tokens read parts of the rows side by side.
inline bool ReadsParts(const BlockFormat& format, int64_t tokens) {
  if (tokens <= kTileTokens) return true;
  if (format.stream == nullptr) return false;
  if (kStreamedTokens > kTileTokens) return tokens <= StreamedTokens();
  return tokens >= kTileTokens + 5 && tokens <= 2 * kTileTokens;
}

[[gnu::noinline]] inline void RunInt8(const MatMulTask& task, const BlockFormat& format) {
  const Scratch scratch(task.scratch.data(), task.cols);
  if (ReadsParts(format, task.tokens)) return RunStreams(task, format, scratch);
  for (int64_t begin = 0; begin < task.tokens; begin += kArrangedTokens) {
    RunPass(task, format, begin, std::min(begin + kArrangedTokens, task.tokens), scratch);
  }
}

template <class Unpacker, Streams kStreamed = Streams::kEveryCount>
void RunInt8(const MatMulTask& task) {
  if constexpr (kStreamedTokens > kTileTokens && !kCountTokens &&
                kStreamed == Streams::kEveryCount) {
    if (task.tokens > kTileTokens && task.tokens <= kStreamedTokens) {
      return RunInt8(task, BlockFormat::Of<Unpacker, kStreamed, kStreamedTokens>(task));
    }
  }
  switch (RoundUpTokens(task.tokens)) {
    case 1: return RunInt8(task, BlockFormat::Of<Unpacker, kStreamed, 1>(task));
    case 2: return RunInt8(task, BlockFormat::Of<Unpacker, kStreamed, 2>(task));
    case 4: return RunInt8(task, BlockFormat::Of<Unpacker, kStreamed, 4>(task));
    default: return RunInt8(task, BlockFormat::Of<Unpacker, kStreamed, kTileTokens>(task));
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
