// Products of quantized weights with records of 64 and more tokens. An instruction set
// includes this file after matmul_int8.inl and panel_operands.inl and after it has defined
//
//   kPanelLanes, kPanelVectors   rows of a vector, vectors of rows of a panel
//   kPanelTokens, TileTokens     tokens of a tile, TokenRecords of so many
//   kPassTokensAim               tokens that a panel is unpacked for, some more at most
//   kPassPanels                  panels whose sums are kept at a time
//   kWidePanels                  whether there are formats with Traits::kWide, whose panels want
//                                activations of 16 bits
//   PanelTraitsOf<Unpacker>      what MultiplyTile must know about a format: kScales, kBlock
//   kPanelBlockMax               the largest kBlock: vectors of 32 columns of a panel
//   PanelLinesOf<Unpacker>(v, panel)   where vector `v` of eight blocks of a panel goes, one of
//                                Lines (pack_rows.inl); of unpackers with Rows
//   PackBlock<Traits, Codes>, MultiplyTile<Traits>, ZeroBlock, StoreLanes
//
// A panel, some rows unpacked 512 columns at a time, stays in the first-level cache while the
// tokens pass by it. The activations are read where they lie; those of 512 columns and the sums of
// a few panels stay in the second-level cache, so that only every few panels they come from afar.
//
// An output is the sum over its blocks of 32 columns in ascending order, whatever the rows and
// tokens beside it: the tiles never change a bit.

constexpr int64_t kPanelHeight = kPanelVectors * kPanelLanes;
// Tiles of tokens that pass by a panel before the next is unpacked.
constexpr int64_t kPassTiles = (kPassTokensAim + kPanelTokens - 1) / kPanelTokens;
// Vectors of sums of a tile.
constexpr int64_t kTileVectors = kPanelVectors * kPanelTokens;

// The parts of a thread's scratch memory.
struct PanelScratch {
  using Vector = Accumulator;
  static constexpr int64_t kSums = kPassPanels * kPassTiles * kTileVectors;
  static constexpr int64_t kPanel = 8 * kPanelDepth * kPanelBlockMax;

  // Vectors of the activations of a tile, and of a pass, in 16 bits.
  static constexpr int64_t kWideTile = kPanelTokens * kWideTokenBytes / int64_t{sizeof(Vector)};
  static constexpr int64_t kWide = kWidePanels ? kPassTiles * kWideTile : 0;

  Vector* sums;   // [kPassPanels][kPassTiles][kPanelTokens][kPanelVectors]
  Vector* panel;  // [8 * kPanelDepth] blocks
  Vector* wide;   // [kPassTiles][kWideTile]

  explicit PanelScratch(std::byte* bytes)
      : sums(reinterpret_cast<Vector*>(bytes)), panel(sums + kSums), wide(panel + kPanel) {}

  int16_t* WideTile(int64_t tile) const {
    return reinterpret_cast<int16_t*>(wide + tile * kWideTile);
  }

  static constexpr size_t Bytes() { return (kSums + kPanel + kWide) * sizeof(Vector); }
};

// Where the bytes of a block of 256 columns begin in each of kPanelLanes rows.
struct RowBlocks {
  const std::byte* first;
  int64_t stride;

  [[gnu::always_inline]] const std::byte* operator[](int64_t row) const {
    return first + row * stride;
  }
};

// The ends of kPanelLanes rows inside a block of 256 columns, copied to where zeros follow, so that
// they are packed from their bytes as whole blocks are.
class RowEndCopies {
 public:
  // Whether the formats' blocks fit.
  static bool Takes(const RowReader& reader) { return reader.block_bytes <= kStride; }

  // `rows`: blocks of which the rows hold the beginning.
  [[gnu::always_inline]] RowEndCopies(const RowReader& reader, RowBlocks rows) {
    const int64_t whole = reader.cols / kBlock;
    const int64_t bytes = reader.EndBytes(whole);
    for (int64_t r = 0; r < kPanelLanes; ++r) {
      std::byte* copy = copies_ + r * kStride;
      std::memcpy(copy, rows[r], static_cast<size_t>(bytes));
      std::memset(copy + bytes, 0, static_cast<size_t>(reader.block_bytes - bytes));
    }
  }

  RowBlocks blocks() const { return {copies_, kStride}; }

 private:
  static constexpr int64_t kStride = 320;
  alignas(64) std::byte copies_[kPanelLanes * kStride];
};

// The traits of a format's panels that the loops below need.
struct PanelFormat {
  RowReader reader;
  // kPanelLanes rows of a block of 256 columns, which may be put in another order there, to vector
  // `v` of eight blocks of a panel.
  void (*pack)(WeightBlock* rows, int64_t v, PanelScratch::Vector* panel);
  void (*multiply)(const PanelScratch::Vector* panel, int64_t blocks, const TileTokens& tokens,
                   PanelActivations at, PanelScratch::Vector* totals);
  int64_t block_vectors;
  int scales;  // of a row in 32 columns
  bool wide;   // whether the activations have 16 bits
  // Packs from the bytes of kPanelLanes rows, in place of `reader` and `pack`.
  void (*pack_rows)(RowBlocks rows, int64_t v, PanelScratch::Vector* panel) = nullptr;

  template <class Unpacker>
  static PanelFormat Of(const MatMulTask& task) {
    using Traits = PanelTraitsOf<Unpacker>;
    bool wide = false;
    if constexpr (kWidePanels) wide = Traits::kWide;
    PanelFormat format = {
        {UnpackBlocks<Unpacker>, BlockBytes<Unpacker>(*task.format), task.format, task.cols},
        PackBlock<Traits, typename Unpacker::Codes>,
        MultiplyTile<Traits>,
        Traits::kBlock,
        Traits::kScales,
        wide};
    if constexpr (requires { typename Unpacker::Rows; }) format.pack_rows = PackRows<Unpacker>;
    return format;
  }

 private:
  template <class Unpacker>
  static void PackRows(RowBlocks rows, int64_t v, PanelScratch::Vector* panel) {
    Unpacker::Rows::PackTo(rows, PanelLinesOf<Unpacker>(v, panel));
  }
};

// Where the rows of a panel or of one of its vectors begin: a matrix of the task and a row of it.
struct PanelRows {
  const std::byte* weights;
  int64_t row;

  const std::byte* Row(const MatMulTask& task, int64_t r) const {
    return weights + (row + r) * task.row_bytes;
  }
};

// Packs block `block` of 256 columns of kPanelLanes rows; rows from task.row_end on are zeros.
inline void PackUnpacked(const MatMulTask& task, const PanelFormat& format, const PanelRows& from,
                         int64_t block, int64_t v, PanelScratch::Vector* panel) {
  WeightBlock rows[kPanelLanes];
  for (int64_t r = 0; r < kPanelLanes; ++r) {
    if (from.row + r < task.row_end) {
      format.reader.Read(from.Row(task, r), block, block + 1, Ahead(), rows + r);
    } else {
      new (rows + r) WeightBlock(ZeroBlock());
    }
  }
  format.pack(rows, v, panel);
}

// Blocks [begin, begin + count) of 256 columns of the rows of a panel.
inline void PackPanel(const MatMulTask& task, const PanelFormat& format, const PanelRows& rows,
                      int64_t begin, int64_t count, PanelScratch::Vector* panel) {
  const int64_t whole = task.cols / kBlock;
  for (int64_t v = 0; v < kPanelVectors; ++v) {
    const PanelRows first = {rows.weights, rows.row + v * kPanelLanes};
    const bool from_bytes = format.pack_rows != nullptr && first.row + kPanelLanes <= task.row_end;
    // Bytes behind the last row's end become lines that no product reads.
    const bool ends_in_place =
        format.reader.EndsInPlace() && first.row + kPanelLanes < task.row_end;
    for (int64_t i = 0; i < count; ++i) {
      PanelScratch::Vector* blocks = panel + i * 8 * format.block_vectors;
      const RowBlocks bytes = {first.Row(task, 0) + (begin + i) * format.reader.block_bytes,
                               task.row_bytes};
      if (from_bytes && (begin + i < whole || ends_in_place)) {
        format.pack_rows(bytes, v, blocks);
      } else if (from_bytes && RowEndCopies::Takes(format.reader)) {
        format.pack_rows(RowEndCopies(format.reader, bytes).blocks(), v, blocks);
      } else {
        PackUnpacked(task, format, first, begin + i, v, blocks);
      }
    }
  }
}

// Rows, of one matrix or of both of a pair, and tokens that pass by each other: at most kPassPanels
// panels and kPassTiles tiles.
struct Pass {
  int64_t row, row_end;
  int64_t token, token_end;

  int64_t Tiles() const { return (token_end - token + kPanelTokens - 1) / kPanelTokens; }
  int64_t PanelsOfMatrix() const { return (row_end - row + kPanelHeight - 1) / kPanelHeight; }
  int64_t Panels(const MatMulTask& task) const {
    return (task.pair != nullptr ? 2 : 1) * PanelsOfMatrix();
  }
  PanelRows At(const MatMulTask& task, int64_t panel) const {
    const int64_t each = PanelsOfMatrix();
    return {panel < each ? task.weights : task.pair->weights, row + panel % each * kPanelHeight};
  }
};

// The bytes that the panel packed next is made of.
struct NextPanel {
  const std::byte* rows = nullptr;
  int64_t height = 0;
  int64_t stride;
  int64_t bytes = 0;  // of a row

  // After `panel` and the blocks from `begin` on: the next rows or the next blocks.
  NextPanel(const MatMulTask& task, const PanelFormat& format, const Pass& pass, int64_t panel,
            int64_t begin)
      : stride(task.row_bytes) {
    const bool same_blocks = panel + 1 < pass.Panels(task);
    const PanelRows next = pass.At(task, same_blocks ? panel + 1 : 0);
    const int64_t block = same_blocks ? begin : begin + kPanelDepth;
    const int64_t blocks = std::min(kPanelDepth, BlockCount(task.cols) - block);
    if (blocks <= 0) return;
    rows = next.Row(task, 0) + block * format.reader.block_bytes;
    height = std::min(kPanelHeight, pass.row_end - next.row);
    bytes = blocks * format.reader.block_bytes;
  }

  // Asks for part `part` of `parts`. Inline, since GCC drops calls of functions that do no more.
  [[gnu::always_inline]] void Prefetch(int64_t part, int64_t parts) const {
    for (int64_t r = height * part / parts; r < height * (part + 1) / parts; ++r) {
      PrefetchBlock<PrefetchTo::kSecondLevel>(rows + r * stride, bytes);
    }
  }
};

// Asks for the outputs of a panel and a tile, which are written once all columns are multiplied.
// All at that time would be more than a core waits for at once.
[[gnu::always_inline]] inline void PrefetchOutputs(const MatMulTask& task, const Pass& pass,
                                                   int64_t panel, int64_t token) {
  const int64_t row = pass.row + panel * kPanelHeight;
  const int64_t end = std::min(token + kPanelTokens, pass.token_end);
  for (; token < end; ++token) {
    const float* out = task.out + token * task.out_stride + row;
    for (int64_t r = 0; r < kPanelHeight; r += 16) __builtin_prefetch(out + r, 1, 2);
  }
}

// A pass's panels from block `begin` of 256 columns on.
inline void MultiplyDepth(const MatMulTask& task, const PanelFormat& format,
                          const PanelActivations& activations, const Pass& pass, int64_t begin,
                          const PanelScratch& scratch) {
  const int64_t count = std::min(kPanelDepth, BlockCount(task.cols) - begin);
  const int64_t depth = std::min(8 * count, task.cols / 32 - 8 * begin);
  const PanelActivations at = activations.From(8 * begin, format.scales);
  if (kWidePanels && format.wide) {
    for (int64_t token = pass.token; token < pass.token_end; token += kPanelTokens) {
      const int64_t tile = (token - pass.token) / kPanelTokens;
      TileTokens(task, token).Widen(at.codes, 32 * depth, scratch.WideTile(tile));
    }
  }
  TileTokens tiles[kPassTiles];
  for (int64_t tile = 0; tile < pass.Tiles(); ++tile) {
    tiles[tile] = TileTokens(task, pass.token + tile * kPanelTokens);
    if (kWidePanels) tiles[tile].wide_codes = scratch.WideTile(tile);
  }
  const bool puts = begin + count == BlockCount(task.cols) && task.pair == nullptr &&
                    (task.finish == nullptr || !task.finish->discards);
  PanelScratch::Vector* sums = scratch.sums;
  for (int64_t panel = 0; panel < pass.Panels(task); ++panel) {
    PackPanel(task, format, pass.At(task, panel), begin, count, scratch.panel);
    const NextPanel next(task, format, pass, panel, begin);
    for (int64_t tile = 0; tile < pass.Tiles(); ++tile) {
      if (begin == 0) std::fill_n(sums, kTileVectors, Zero());
      next.Prefetch(tile, pass.Tiles());
      if (puts) PrefetchOutputs(task, pass, panel, pass.token + tile * kPanelTokens);
      format.multiply(scratch.panel, depth, tiles[tile], at, sums);
      sums += kTileVectors;
    }
  }
}

// The outputs of a pass, token by token, so that each gets the rows of all panels at a time.
inline void PutSums(const MatMulTask& task, const Pass& pass, const PanelScratch::Vector* sums) {
  // Outputs of the next tokens lie too far apart for a prefetcher of the CPU, and so do the sums of
  // the next panel.
  constexpr int64_t kAhead = 4;
  alignas(64) float discarded[kPassPanels * kPanelHeight];
  const bool discards = task.finish != nullptr && task.finish->discards;
  for (int64_t token = pass.token; token < pass.token_end; ++token) {
    const PanelScratch::Vector* from = sums + (token - pass.token) * kPanelVectors;
    float* out = discards ? discarded - pass.row : task.out + token * task.out_stride;
    for (int64_t row = pass.row; !discards && row < pass.row_end; row += 16) {
      __builtin_prefetch(out + kAhead * task.out_stride + row, 1);
    }
    for (int64_t row = pass.row; row < pass.row_end; row += kPanelHeight) {
      for (int64_t v = 0; v < kPanelVectors; ++v) {
        const int64_t first = row + v * kPanelLanes;
        __builtin_prefetch(from + kAhead * kPanelVectors + v);
        StoreLanes(from[v], task.row_end - first, task.store, out + first);
      }
      from += pass.Tiles() * kTileVectors;
    }
    if (task.finish == nullptr) continue;
    task.finish->finish(task.finish->context, token, pass.row, pass.row_end - pass.row,
                        out + pass.row);
  }
}

// Gives the outputs of a pass to the taker of a pair, which gets both products of each token.
inline void GivePairs(const MatMulTask& task, const Pass& pass, const PanelScratch::Vector* sums) {
  constexpr int64_t kRows = kPassPanels / 2 * kPanelHeight;
  alignas(64) float products[2][kRows];
  const int64_t panels = pass.PanelsOfMatrix();
  for (int64_t token = pass.token; token < pass.token_end; ++token) {
    const PanelScratch::Vector* from = sums + (token - pass.token) * kPanelVectors;
    for (float* out : products) {
      for (int64_t i = 0; i < panels * kPanelVectors; i += kPanelVectors) {
        for (int64_t v = 0; v < kPanelVectors; ++v) {
          StoreLanes(from[v], kPanelLanes, Store::kSet, out + (i + v) * kPanelLanes);
        }
        from += pass.Tiles() * kTileVectors;
      }
    }
    task.pair->take(task.pair->context, token, pass.row, pass.row_end - pass.row, products[0],
                    products[1]);
  }
}

[[gnu::noinline]] inline void RunPanels(const MatMulTask& task, const PanelFormat& format) {
  constexpr int64_t kPassTokens = kPassTiles * kPanelTokens;
  static_assert(kPassPanels / 2 * kPanelHeight % kMatMulPairRows == 0);
  const int64_t pass_rows = kPassPanels / (task.pair != nullptr ? 2 : 1) * kPanelHeight;
  if (task.arranged != nullptr) *task.arranged = {};
  const PanelScratch scratch(task.scratch.data());
  const PanelActivations activations = PanelActivations::Of(task, format.scales);
  for (int64_t token = 0; token < task.tokens; token += kPassTokens) {
    for (int64_t row = task.row_begin; row < task.row_end; row += pass_rows) {
      const Pass pass = {row, std::min(row + pass_rows, task.row_end), token,
                         std::min(token + kPassTokens, task.tokens)};
      for (int64_t begin = 0; begin < BlockCount(task.cols); begin += kPanelDepth) {
        MultiplyDepth(task, format, activations, pass, begin, scratch);
      }
      if (task.pair != nullptr) {
        GivePairs(task, pass, scratch.sums);
      } else {
        PutSums(task, pass, scratch.sums);
      }
    }
  }
}

// All numbers of tokens.
template <class Unpacker, Streams kStreamed = Streams::kEveryCount>
void RunQuantized(const MatMulTask& task) {
  if (task.count == TokenCount::kMany) return RunPanels(task, PanelFormat::Of<Unpacker>(task));
  RunInt8<Unpacker, kStreamed>(task);
}

inline size_t QuantizedScratchBytes(int64_t cols) {
  return std::max(Scratch::Bytes(cols), PanelScratch::Bytes());
}
