// What the host tells the kernels: addresses in the device's memory, and numbers. Plain data, the
// same for the compiler of the device and of the host.
//
// A block of the cache holds, for each layer of its group: the keys of all heads, their values,
// their key scales and their value scales, in the layout of tiles that the CPU has
// (cpu/kv_format_list.h). So copying a block is copying one range.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvant::cuda {

// The layout of tiles, which engine/graph/device_attention.cpp compares with the CPU's.
inline constexpr int kBlockPositions = 32;
inline constexpr int kKeyTilePositions = 16;
inline constexpr int kValueTilePositions = 4;

// Positions over which one softmax of a pass of few rows runs before results are merged: a span's
// result depends on nothing but the row, so a row has the same bits in any company.
inline constexpr int kSpanPositions = 256;
// Query vectors that a thread block attends for: 16 a warp.
inline constexpr int kTileQueries = 64;
inline constexpr int kThreads = 128;
// Floats before the sums in a partial result: the greatest score and the sum of weights.
inline constexpr int kPartialHead = 2;

// Rows of a pass that are attended to together, at most 32, and what they see.
struct Piece {
  int32_t first_row;
  int32_t rows;           // 0: there is no piece
  int32_t entries_begin;  // into PassTables::entries, which are sorted by position
  int32_t entries_end;
  int32_t hidden_begin;  // into PassTables::hidden
  int32_t hidden_end;
  int32_t begin;  // the positions [begin, end) are all that some row sees
  int32_t end;
};

// `count` positions from `position` on, in one block.
struct Entry {
  int32_t block;
  int32_t position;
  int32_t count;
  uint32_t rows;  // a bit for each row of the piece that may see it
};

// Positions that rows do not see.
struct Hidden {
  int32_t begin;
  int32_t end;
  uint32_t rows;
};

// What a pass is for the layers of a group. The addresses stay the same from pass to pass, so that
// a recorded graph stays right.
struct PassTables {
  const int32_t* positions;  // [rows]
  const int32_t* blocks;     // [rows], the block that a row is stored in; -1: it is not stored
  const Piece* pieces;
  const Hidden* hidden;
  const Entry* entries;
};

enum class Element : int32_t { kF16, kInt8 };

// The blocks of a group as one layer sees them.
struct LayerBlocks {
  std::byte* memory;     // of the group
  uint64_t block_bytes;  // from a block to the next one
  uint64_t keys;         // from a block to the layer's keys, and so on
  uint64_t values;
  uint64_t key_scales;
  uint64_t value_scales;
  int32_t kv_heads;
  int32_t k_dim;  // multiples of 8
  int32_t v_dim;
  Element k_element;
  Element v_element;
};

// Stores the keys and values of rows; a thread block for each row and kv head.
struct StoreParams {
  LayerBlocks blocks;
  PassTables tables;
  const float* input;  // rows of input_stride floats
  int64_t input_stride;
  int32_t key_column;  // of the first head
  int32_t value_column;
};

enum class Window : int32_t { kSliding, kSections };

// Attention of the pieces [first_piece, first_piece + grid.x / query_tiles), by
// cpu::AttentionTask's formulas.
struct AttentionParams {
  LayerBlocks blocks;
  PassTables tables;
  const float* input;  // rows of input_stride floats, which begin with the queries of all heads
  float* output;       // rows of output_stride floats, which begin with the results of all heads
  float* partials;     // of few rows: [rows][heads][spans] results; null: many rows
  int64_t input_stride;
  int64_t output_stride;
  const float* slopes;     // [heads]; null: none
  const float* sinks;      // [heads]; null: none
  const float* distances;  // [heads][distance_stride], from the number of distance_least on; null
  int32_t distance_least;
  int32_t distance_count;
  int32_t distance_stride;
  int32_t heads_per_kv;
  int32_t query_tiles;  // thread blocks of a piece and kv head
  int32_t first_piece;
  int32_t spans;  // of a row's partial results: those from the piece's first span on
  float scale;
  float score_cap;  // 0: none
  int32_t window;   // 0: all positions
  Window window_kind;
  // Of the shared memory: what a stage of keys and values takes, and how many there are.
  int32_t stages;
};

// Merges the partial results of a row and head: a thread block for each.
struct MergeParams {
  PassTables tables;
  const float* partials;
  float* output;
  int64_t output_stride;
  const float* sinks;
  int32_t pieces;
  int32_t spans;
  int32_t v_dim;
  int32_t window;
  Window window_kind;
};

// A range of bytes that is copied; all multiples of 16.
struct CopyRange {
  const std::byte* from;
  std::byte* to;
  uint64_t bytes;
};

// Makes the copies of a step: grid.x of them, grid.y thread blocks each.
struct CopyParams {
  const CopyRange* ranges;
};

// The sizes of the shared memory of an attention.
struct SharedLayout {
  int32_t k_padded;      // k_dim as whole steps of the tensor cores
  int32_t v_padded;      // v_dim, likewise
  int32_t query_stride;  // halves from a query to the next
  int32_t value_stride;
  uint32_t queries;  // bytes of [kTileQueries][query_stride]
  uint32_t keys;     // bytes of [k_padded][kKeyStride]
  uint32_t values;   // bytes of [kBlockPositions][value_stride]
  uint32_t raw_keys;
  uint32_t raw_values;
  uint32_t scales;     // of one stage, keys and values
  uint32_t stage;      // bytes of one stage
  uint32_t converted;  // bytes where codes become halves

  constexpr uint32_t bytes(int stages) const {
    return queries + static_cast<uint32_t>(stages) * stage + converted;
  }
};

// Halves from a dimension of keys in shared memory to the next: 32 positions, and 8 more, so that
// eight rows of a matrix load lie in different banks.
inline constexpr int kKeyStride = kBlockPositions + 8;

#ifdef __CUDACC__
#define KVANT_BOTH __host__ __device__
#else
#define KVANT_BOTH
#endif

KVANT_BOTH constexpr SharedLayout LayoutOf(const LayerBlocks& blocks) {
  SharedLayout at = {};
  at.k_padded = (blocks.k_dim + 15) / 16 * 16;
  at.v_padded = (blocks.v_dim + 15) / 16 * 16;
  at.query_stride = at.k_padded + 8;
  at.value_stride = at.v_padded + 8;
  at.queries = static_cast<uint32_t>(kTileQueries * at.query_stride * 2);
  at.keys = static_cast<uint32_t>(at.k_padded * kKeyStride * 2);
  at.values = static_cast<uint32_t>(kBlockPositions * at.value_stride * 2);
  const bool k_codes = blocks.k_element == Element::kInt8;
  const bool v_codes = blocks.v_element == Element::kInt8;
  at.raw_keys = static_cast<uint32_t>(k_codes ? kBlockPositions * blocks.k_dim : 0);
  at.raw_values = static_cast<uint32_t>(v_codes ? kBlockPositions * blocks.v_dim : 0);
  at.scales = static_cast<uint32_t>(((k_codes ? 1 : 0) + (v_codes ? 1 : 0)) * kBlockPositions * 4);
  at.stage = (k_codes ? at.raw_keys : at.keys) + (v_codes ? at.raw_values : at.values) + at.scales;
  at.converted = (k_codes ? at.keys : 0) + (v_codes ? at.values : 0);
  return at;
}

}  // namespace kvant::cuda
