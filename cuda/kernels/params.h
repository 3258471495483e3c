// The parameters that the host gives the kernels: addresses in the device's memory, and numbers.
// Plain data, laid out alike by the compiler of the device and of the host.
//
// A block of the cache holds, for each layer of its group: the keys of all heads, their values,
// their key scales and their value scales, in the layout of tiles that the CPU has
// (cpu/kv_format_list.h). So copying a block is copying one range.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvant::cuda {

// The layout of tiles, which engine/graph/device/device_attention.cpp compares with the CPU's.
inline constexpr int kBlockPositions = 32;
inline constexpr int kKeyTilePositions = 16;
inline constexpr int kValueTilePositions = 4;

// Positions over which one softmax runs before results are joined (spans.h).
inline constexpr int kSpanPositions = 256;
// Query vectors of a tile of tensor cores.
inline constexpr int kWarpQueries = 16;
inline constexpr int kThreads = 128;
inline constexpr int kThreadsMax = 384;  // of any kernel
// Floats before the sums in a partial result: the greatest score, the sum of weights, and nothing.
inline constexpr int kPartialHead = 4;

// Rows of a pass that are attended to together, and what they see: up to 32 rows of any sequences,
// or any number of one sequence, all of which may see all entries.
struct Piece {
  int32_t first_row;
  int32_t rows;           // 0: there is no piece
  int32_t entries_begin;  // into PassTables::entries, which are sorted by position
  int32_t entries_end;
  int32_t hidden_begin;  // into PassTables::hidden
  int32_t hidden_end;
  int32_t begin;  // the positions [begin, end) are all that some row sees
  int32_t end;
  int32_t
      all_begin;  // [all_begin, all_end) are those that every row sees, if it may see their entry
  int32_t all_end;
  int32_t spans_at;  // into PassTables::span_entries
};

// `count` positions from `position` on, in one block.
struct alignas(16) Entry {
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

// The tables of a pass for the layers of a group. The addresses stay the same from pass to pass, so
// that a recorded graph stays right.
struct PassTables {
  const int32_t* positions;  // [rows]
  const int32_t* blocks;     // [rows], the block that a row is stored in; -1: it is not stored
  const Piece* pieces;
  const Hidden* hidden;
  const Entry* entries;
  // A piece with n spans has n + 1 numbers: the entry that each span begins with, and entries_end.
  const int32_t* span_entries;
};

enum class Element : int32_t { kF16, kInt8 };
// The form of a key that a query meets: the position's key, or its value and then its key (latent
// attention).
enum class KeyForm : int32_t { kStored, kValueFirst };

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
  Element k_type;
  Element v_type;
  KeyForm key_form = KeyForm::kStored;
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

// Attention by cpu::AttentionTask's formulas. Thread block x has the query vectors of number
// first_block + x: query_tiles thread blocks for each piece.
struct AttentionParams {
  LayerBlocks blocks;
  PassTables tables;
  const float* input;  // rows of input_stride floats, which begin with the queries of all heads
  float* output;       // rows of output_stride floats, which begin with the results of all heads
  float* partials;     // [rows][heads][spans] results, a thread block for each span; null: none
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
  int32_t first_block;
  int32_t round;  // SpanLayout::round
  int32_t spans;  // of a row's partial results: those from the piece's first span on
  float scale;
  float score_cap;  // 0: none
  int32_t window;   // 0: all positions
  Window window_kind;
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

}  // namespace kvant::cuda
