// Products of quantized weights with int8 activations of 64 and more tokens. An instruction set
// includes this file after matmul_int8.inl and after it has defined
//
//   kPanelLanes, kPanelTokens      rows of a vector, tokens of a tile
//   PanelTraits, PanelBlockVectors<Traits>()
//   PackBlock, MultiplyTile, ZeroBlock, StoreLanes, TileTokens
//
// Two vectors of rows are unpacked, 512 columns at a time, into a panel that stays in the
// first-level cache while all tokens pass by it; the activations are read where they lie. The sums
// of a pass stay in the second-level cache.
//
// An output is the sum over its blocks of 32 columns in ascending order, whatever the rows and
// tokens beside it: the tiles never change a bit.

// Vectors of rows of a panel.
constexpr int kPanelVectors = 2;
// Blocks of 256 columns of a panel.
constexpr int64_t kPanelDepth = 2;
// Tiles of tokens that pass by a panel before the next is unpacked.
constexpr int64_t kPassTiles = 86;

template <class Unpacker>
using PanelTraitsOf =
    PanelTraits<Unpacker::Codes::kBias != 0, Unpacker::Codes::kHasOffsets, Unpacker::kScaleValues>;

// The parts of a thread's scratch memory.
struct PanelScratch {
  using Vector = Accumulator;
  Vector* sums;   // [kPassTiles][kPanelVectors][kPanelTokens]
  Vector* panel;  // [8 * kPanelDepth][at most 12][kPanelVectors]

  explicit PanelScratch(std::byte* bytes)
      : sums(reinterpret_cast<Vector*>(bytes)),
        panel(sums + kPassTiles * kPanelVectors * kPanelTokens) {}

  static constexpr size_t Bytes() {
    return (kPassTiles * kPanelTokens + 8 * kPanelDepth * 12) * kPanelVectors * sizeof(Vector);
  }
};

// Blocks [begin, begin + count) of 256 columns of kVectors vectors of rows from `row` on.
template <class Unpacker, int kVectors>
void PackPanel(const MatMulTask& task, int64_t row, int64_t begin, int64_t count,
               PanelScratch::Vector* panel) {
  using Traits = PanelTraitsOf<Unpacker>;
  constexpr int64_t kBlockVectors = 8 * PanelBlockVectors<Traits>() * kVectors;
  for (int64_t v = 0; v < kVectors; ++v) {
    for (int64_t i = 0; i < count; ++i) {
      WeightBlock rows[kPanelLanes];
      for (int64_t r = 0; r < kPanelLanes; ++r) {
        const int64_t from = row + v * kPanelLanes + r;
        const PackedRow<Unpacker> packed{task.weights + from * task.row_bytes, task.format,
                                         task.cols};
        rows[r] = from < task.row_end ? packed.Block(begin + i) : ZeroBlock();
      }
      PackBlock<Traits, kVectors, Unpacker::Codes::kBias>(
          rows, v, reinterpret_cast<__m512i*>(panel) + i * kBlockVectors);
    }
  }
}

// The outputs of kVectors vectors of rows from `row` on for the tokens of one tile.
template <int kVectors>
struct TileOutput {
  float* out;  // of the tile's first token
  int64_t stride;
  int64_t tokens;
  int64_t rows;  // from `row` on that exist

  TileOutput(const MatMulTask& task, int64_t row, int64_t token)
      : out(task.out + token * task.out_stride + row),
        stride(task.out_stride),
        tokens(std::min<int64_t>(kPanelTokens, task.tokens - token)),
        rows(task.row_end - row) {}

  // Outputs of neighbouring tokens lie far apart: ask for them a tile's work ahead of their use.
  void Prefetch() const {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t v = 0; v < kVectors; ++v) {
        __builtin_prefetch(out + t * stride + v * kPanelLanes, 1);
      }
    }
  }

  void Put(const PanelScratch::Vector* sums, Store store) const {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t v = 0; v < kVectors; ++v) {
        StoreLanes(sums[v * kPanelTokens + t], rows - v * kPanelLanes, store,
                   out + t * stride + v * kPanelLanes);
      }
    }
  }
};

// kVectors vectors of rows from `row` on times the tokens [token, token_end) of a pass.
template <class Unpacker, int kVectors>
void MultiplyPanels(const MatMulTask& task, int64_t row, int64_t token, int64_t token_end,
                    const PanelScratch& scratch) {
  using Traits = PanelTraitsOf<Unpacker>;
  const int64_t blocks = BlockCount(task.cols);
  for (int64_t begin = 0; begin < blocks; begin += kPanelDepth) {
    const int64_t count = std::min(kPanelDepth, blocks - begin);
    const bool last = begin + count == blocks;
    PackPanel<Unpacker, kVectors>(task, row, begin, count, scratch.panel);
    const int64_t depth = std::min(8 * count, task.cols / 32 - 8 * begin);
    PanelScratch::Vector* sums = scratch.sums;
    for (int64_t t = token; t < token_end; t += kPanelTokens, sums += kVectors * kPanelTokens) {
      const TileOutput<kVectors> output(task, row, t);
      if (last) output.Prefetch();
      MultiplyTile<Traits, kVectors>(reinterpret_cast<const __m512i*>(scratch.panel), depth,
                                     TileTokens::At<Traits>(task, t, 8 * begin), begin == 0, sums);
      if (last) output.Put(sums, task.store);
    }
  }
}

template <class Unpacker>
void RunPanels(const MatMulTask& task) {
  const PanelScratch scratch(task.scratch.data());
  constexpr int64_t kPassTokens = kPassTiles * kPanelTokens;
  for (int64_t token = 0; token < task.tokens; token += kPassTokens) {
    const int64_t token_end = std::min(token + kPassTokens, task.tokens);
    for (int64_t row = task.row_begin; row < task.row_end; row += kPanelVectors * kPanelLanes) {
      if (task.row_end - row > kPanelLanes) {
        MultiplyPanels<Unpacker, kPanelVectors>(task, row, token, token_end, scratch);
      } else {
        MultiplyPanels<Unpacker, 1>(task, row, token, token_end, scratch);
      }
    }
  }
}

// All numbers of tokens.
template <class Unpacker>
void RunQuantized(const MatMulTask& task) {
  if (task.tokens >= kManyTokens) return RunPanels<Unpacker>(task);
  RunInt8<Unpacker>(task);
}

inline size_t QuantizedScratchBytes(int64_t cols) {
  return std::max(Scratch::Bytes(cols), PanelScratch::Bytes());
}
