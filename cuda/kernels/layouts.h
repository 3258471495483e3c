// Where the kernels of attention have what in shared memory. The host asks for as much of it.
#pragma once

#include "cuda/kernels/params.h"

namespace kvant::cuda {

#ifdef __CUDACC__
#define KVANT_BOTH __host__ __device__
#else
#define KVANT_BOTH
#endif

// ---- span_rows.h --------------------------------------------------------------------------------

// Of a thread block, and blocks that its warps take at a time at most.
inline constexpr int kSpanThreads = 256;
inline constexpr int kRoundMost = kSpanThreads / 32;
// Of a block: two halves for each position.
inline constexpr int kFactorBytes = kBlockPositions * 4;

struct SpanLayout {
  int steps;      // of 16 dimensions of keys
  int key_bytes;  // of a head in a block
  int value_bytes;
  int value_row_bytes;  // values are copied in rows that are so long, and
  int value_row;        // so far apart in a slot, that eight rows lie in different banks
  int rows;             // where there is what: a QueryRow for each query,
  int most;             // the greatest scores of all warps,
  int weights;          // weights,
  int factors;          // what values need,
  int whole;            // which blocks need none of it,
  int barriers;
  int slots;  // [round] of keys or values
  int slot;   // bytes
  int bytes;
};
KVANT_BOTH constexpr SpanLayout SpanLayoutOf(const LayerBlocks& blocks, int tiles, int round) {
  const bool k_codes = blocks.k_element == Element::kInt8;
  const bool v_codes = blocks.v_element == Element::kInt8;
  const int queries = tiles * kWarpQueries;
  SpanLayout at = {};
  at.steps = (blocks.k_dim + 15) / 16;
  at.key_bytes = kBlockPositions * blocks.k_dim * (k_codes ? 1 : 2);
  at.value_bytes = kBlockPositions * blocks.v_dim * (v_codes ? 1 : 2);
  at.value_row_bytes = v_codes ? at.value_bytes : blocks.v_dim * 2;
  at.value_row = v_codes ? at.value_bytes : blocks.v_dim * 2 + 16;
  at.rows = tiles * at.steps * 512;
  at.most = at.rows + queries * 16;
  at.weights = at.most + kRoundMost * queries * 4;
  at.factors = at.weights + round * 2 * tiles * 512;
  at.whole = at.factors + kRoundMost * kFactorBytes;
  at.barriers = at.whole + kRoundMost * 4;
  at.slots = (at.barriers + 2 * kRoundMost * 8 + 127) / 128 * 128;
  const int values = at.value_bytes / at.value_row_bytes * at.value_row;
  at.slot = ((at.key_bytes > values ? at.key_bytes : values) + 127) / 128 * 128;
  at.bytes = at.slots + round * at.slot;
  return at;
}

// ---- hopper.h -----------------------------------------------------------------------------------

inline constexpr int kHopperThreads = 384;
// Spans of which something is known beside keys and values.
inline constexpr int kHopperHeads = 4;
inline constexpr int kSpanBlocks = kSpanPositions / kBlockPositions;

// A span's blocks, by position; `counts` positions of each are written.
struct SpanHead {
  int32_t blocks[kSpanBlocks];
  int32_t counts[kSpanBlocks];
  int32_t seen;     // all rows see all of it
  int32_t hides;    // the piece has positions that rows do not see
  int32_t changes;  // scores are capped or biased
};

// In bytes, of a kernel for up to `dims` dimensions of keys and of values: 64, 128 or 256. What
// there is not of them is zeros.
template <int dims>
struct HopperLayout {
  static constexpr int kGroups = dims <= 128 ? 2 : 1;  // warpgroups that attend
  static constexpr int kQueries = 64 * kGroups;
  // Of a thread that attends, and of one that brings.
  template <bool kCodes>
  static constexpr int kRegisters = dims > 128 ? 240
                                    : kCodes   ? 216
                                               : 232;
  template <bool kCodes>
  static constexpr int kProducerRegisters = dims > 128 || kCodes ? 72 : 40;
  static constexpr int kTile = dims <= 128 ? 128 : 64;  // positions
  static constexpr int kTiles = kSpanPositions / kTile;
  static constexpr int kSlots = dims <= 64 ? 6 : 3;    // of a tile's keys or values
  static constexpr int kQueryStrip = dims * 16;        // from 8 query vectors to the next
  static constexpr int kKeyStrip = dims * 16 + 32;     // from 8 positions to the next
  static constexpr int kValueStrip = kTile * 16 + 16;  // from 8 dimensions to the next
  static constexpr int kKeyBytes = kTile / 8 * kKeyStrip;
  static constexpr int kValueBytes = dims / 8 * kValueStrip;
  static constexpr int kSlotBytes =
      ((kKeyBytes > kValueBytes ? kKeyBytes : kValueBytes) + 127) / 128 * 128;
  static constexpr int kRing = kQueries / 8 * kQueryStrip;
  static constexpr int kJoined = kRing + kSlots * kSlotBytes;  // [dims / 2][threads] floats
  static constexpr int kScales = kJoined + kQueries * dims * 4;
  // [kHopperHeads]: scales of keys, then the factors of values.
  static constexpr int kScaleBytes = kSpanPositions * 8;
  static constexpr int kHeads = kScales + kHopperHeads * kScaleBytes;
  static constexpr int kBarriers =
      kHeads + kHopperHeads * ((static_cast<int>(sizeof(SpanHead)) + 15) / 16 * 16);
  static constexpr int kBytes = kBarriers + kSlots * 16;
};

// ---- spans.h ------------------------------------------------------------------------------------

// Dimensions that a thread block of MergeSpans merges, and spans that it brings at a time.
inline constexpr int kMergedDims = 32;
inline constexpr int kMergedSpans = kThreads;
inline constexpr int kMergeSharedBytes = kMergedSpans * (kMergedDims + 2 + 4) * 4;

}  // namespace kvant::cuda
