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

// Threads of a thread block, and blocks that its warps take at a time at most.
inline constexpr int kSpanThreads = 256;
inline constexpr int kRoundMost = kSpanThreads / 32;
// Bytes between rows of values, so that the rows that a warp reads at once lie in different banks:
// eight of them, of positions of halves; two of codes, of four positions each.
inline constexpr int kValuePad = 16;
inline constexpr int kCodePad = 32;
// The factors of a block: two halves for each position.
inline constexpr int kFactorBytes = kBlockPositions * 4;

struct SpanLayout {
  int round;      // blocks that warps take at a time, or stages of latents
  int steps;      // of 16 dimensions of queries
  int key_bytes;  // of a head in a block
  int value_bytes;
  int value_row_bytes;  // values are copied in rows that are so long, and
  int value_row;        // so far apart in a slot
  int slot;             // bytes
  int keys;             // of latents: where in a slot the keys lie, behind the values
  int rows;             // where there is what: a QueryRow for each query,
  int most;             // the greatest scores of all warps,
  int weights;          // weights,
  int factors;          // what values need,
  int whole;            // which blocks need none of it,
  int slots;            // and the slots
  int bytes;
};
KVANT_BOTH constexpr int SlotBytes(int bytes) { return (bytes + 127) / 128 * 128; }
KVANT_BOTH constexpr SpanLayout BlockLayoutOf(const LayerBlocks& blocks) {
  const bool k_codes = blocks.k_type == Element::kInt8;
  const bool v_codes = blocks.v_type == Element::kInt8;
  SpanLayout at = {};
  at.steps = (blocks.k_dim + 15) / 16;
  at.key_bytes = kBlockPositions * blocks.k_dim * (k_codes ? 1 : 2);
  at.value_bytes = kBlockPositions * blocks.v_dim * (v_codes ? 1 : 2);
  at.value_row_bytes = blocks.v_dim * (v_codes ? kValueTilePositions : 2);
  at.value_row = at.value_row_bytes + (v_codes ? kCodePad : kValuePad);
  at.keys = at.value_bytes / at.value_row_bytes * at.value_row;
  return at;
}
KVANT_BOTH constexpr SpanLayout WithSlots(SpanLayout at, int tiles, int slots) {
  const int queries = tiles * kWarpQueries;
  at.rows = tiles * at.steps * 512;
  at.most = at.rows + queries * 16;
  at.weights = at.most + kRoundMost * queries * 4;
  at.factors = at.weights + slots * 2 * tiles * 512;
  at.whole = at.factors + kRoundMost * kFactorBytes;
  at.slots = SlotBytes(at.whole + kRoundMost * 4);
  at.bytes = at.slots + slots * at.slot;
  return at;
}
// A slot has keys or values.
KVANT_BOTH constexpr SpanLayout SpanLayoutOf(const LayerBlocks& blocks, int tiles, int round) {
  SpanLayout at = BlockLayoutOf(blocks);
  at.round = round;
  at.slot = SlotBytes(at.key_bytes > at.keys ? at.key_bytes : at.keys);
  return WithSlots(at, tiles, round);
}

// ---- latent_rows.h ------------------------------------------------------------------------------

// Blocks that a thread block takes at a time, and how many times there is room for them at most.
inline constexpr int kLatentBlocks = 2;
inline constexpr int kLatentStages = 2;
inline constexpr int kLatentMost = 512;  // dimensions of values

// A slot has values and then keys.
KVANT_BOTH constexpr SpanLayout LatentLayoutOf(const LayerBlocks& blocks, int stages) {
  SpanLayout at = BlockLayoutOf(blocks);
  at.round = stages;
  at.steps += (blocks.v_dim + 15) / 16;
  at.slot = SlotBytes(at.keys + at.key_bytes);
  return WithSlots(at, 1, stages * kLatentBlocks);
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

// Places, in bytes, of a kernel for up to `dims` dimensions of keys and of values: 64, 128 or 256.
// Dimensions that the model does not have are zeros.
template <int dims>
struct HopperLayout {
  static constexpr int kGroups = dims <= 128 ? 2 : 1;  // warpgroups that attend
  static constexpr int kQueries = 64 * kGroups;
  // Registers of a thread that attends, and of one that brings copies.
  template <bool kCodes>
  static constexpr int kRegisters = dims > 128 ? 240
                                    : kCodes   ? 216
                                               : 232;
  template <bool kCodes>
  static constexpr int kProducerRegisters = dims > 128 || kCodes ? 72 : 40;
  static constexpr int kTile = dims <= 128 ? 128 : 64;  // positions
  static constexpr int kTiles = kSpanPositions / kTile;
  // Where the joined sums are registers, there are enough slots that one group may multiply by
  // values while the other still needs the keys after them.
  static constexpr bool kJoinedInRegisters = dims <= 128;
  static constexpr int kSlots = dims <= 64 ? 6 : dims <= 128 ? 5 : 3;  // of a tile's keys or values
  static constexpr int kQueryStrip = dims * 16;        // from 8 query vectors to the next
  static constexpr int kKeyStrip = dims * 16 + 32;     // from 8 positions to the next
  static constexpr int kValueStrip = kTile * 16 + 16;  // from 8 dimensions to the next
  static constexpr int kKeyBytes = kTile / 8 * kKeyStrip;
  static constexpr int kValueBytes = dims / 8 * kValueStrip;
  static constexpr int kSlotBytes =
      ((kKeyBytes > kValueBytes ? kKeyBytes : kValueBytes) + 127) / 128 * 128;
  static constexpr int kRing = kQueries / 8 * kQueryStrip;
  // [dims / 2][threads] floats, if they are no registers.
  static constexpr int kJoined = kRing + kSlots * kSlotBytes;
  static constexpr int kScales = kJoined + (kJoinedInRegisters ? 0 : kQueries * dims * 4);
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
inline constexpr int kMergeThreads = 256;
inline constexpr int kMergedSpans = kMergeThreads;
inline constexpr int kMergeSharedBytes = kMergedSpans * (kMergedDims + 2 + 4) * 4;

}  // namespace kvant::cuda
