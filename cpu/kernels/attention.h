// Attention of query rows over cached keys and values: the task that a kernel is given, and the
// constants that fix its bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "cpu/distance_bias.h"
#include "cpu/kernels/token_count.h"
#include "cpu/kv_format_list.h"

namespace kvant::cpu {

// The largest code of a weight that meets q8 values: sums over the kAttentionSpan positions of a
// span stay below 2^31.
inline constexpr int kKvWeightCodeMax = 32767;

// The two layouts of a position's key.
enum class KeyForm : uint8_t {
  kStored,      // the k_dim numbers of the key tiles
  kValueFirst,  // the position's value, then the k_dim numbers of the key tiles: latent attention
};

// A run of cached positions of one kv head that lie contiguously in memory.
struct KvRun {
  const std::byte* keys;    // key tiles, the first starts at first_position
  const std::byte* values;  // value tiles, the first starts at first_position
  int64_t first_position;   // multiple of kKeyTileTokens
  int64_t count;            // tokens; the rest of the last tile may hold anything
  // KvScaleBytes for each token, of formats with scales; of keys rounded up to whole tiles.
  const void* key_scales = nullptr;
  const void* value_scales = nullptr;
  // Bit r: the task's row r - AttentionTask::mask_row (modulo 64) may see it.
  uint64_t rows = ~uint64_t{0};
};

// Positions that the rows of a task whose bits are set do not see, although runs hold them. Their
// values have the weight 0 and may be multiplied with it: f32 and f16 values must be finite.
struct HiddenPositions {
  int64_t begin;
  int64_t end;
  uint64_t rows = ~uint64_t{0};  // as in KvRun
};

// Positions of a span, over which one softmax runs. Spans begin at multiples of it, whatever the
// runs and the threads, and their partial results (maximum, sum of exponentials, weighted values)
// merge in order of position: that fixes the bits.
inline constexpr int64_t kAttentionSpan = 512;
static_assert(kKvWeightCodeMax * 127ll * kAttentionSpan < 1ll << 31);

// Rows of a task some of whose runs or hidden positions are not for all rows.
inline constexpr int64_t kMaskedRowsMax = 64;

// The slice of a task that one call attends to: spans [begin, end); span s begins at position s *
// kAttentionSpan. A call for a slice writes no result. It leaves, for attention_merge, one record
// of AttentionPartialFloats(v_dim) floats for each of its spans and query vectors: span s of query
// vector q has the record (s - first) * rows * heads_per_kv + q of `partials`. A record holds the
// largest score times log2(e), then the sum of the weights relative to that score, and from number
// 16 on the sums of the weighted values.
struct AttentionSlice {
  int64_t first = 0;  // the first span of the task
  int64_t begin = 0;
  int64_t end = std::numeric_limits<int64_t>::max();
  float* partials = nullptr;  // 64-byte aligned; null: all spans, and the result goes to `out`
};
constexpr int64_t AttentionPartialFloats(int v_dim) { return 16 + (v_dim + 15) / 16 * 16; }

// Where the window of a query begins.
enum class WindowKind : uint8_t {
  kSliding,   // it is the last `window` positions, the query's own included
  kSections,  // at the last multiple of `window`: the sequence is cut into sections of this length
};

// The first position that a query sees; window 0: all.
inline int64_t FirstInWindow(WindowKind kind, int64_t window, int64_t position) {
  if (window == 0) return 0;
  if (kind == WindowKind::kSections) return position - position % window;
  return position < window ? 0 : position - window + 1;
}

// For every query row r and query head h of one kv head:
// out = softmax(s over the visible positions) . v, s = cap(scale * q . k) - slope[h] * |p - o[r]|
// + bias[h](p - o[r]), visible = { p : p <= position[r] and p >= FirstInWindow(window_kind, window,
// position[r]) }, less the hidden ones; o is `origins`. A sink is one more score without a value.
// Products with codes are exact integers for all numbers that share a scale: queries meet codes of
// keys as q8 vectors, and the weights of a softmax span, relative to the largest and each times the
// scale of its value, meet codes of values as codes. The code kKvWeightCodeMax stands for the
// weight 1 and the largest scale that the row sees in the span, so a value whose scale is 2^n times
// that of others takes n of their weights' 15 bits. A position whose weight underflows to 0 may
// count as hidden where values have scales, even if the scale of its value is NaN.
//
// In KeyForm::kValueFirst q . k is a sum of two products: the query's first v_dim values meet the
// position's value, and the others meet the key tiles. Either product is one of codes where the
// cached side has scales.
struct AttentionTask {
  const float* queries;      // [rows][heads_per_kv] vectors of query_dim() floats
  int64_t query_row_stride;  // floats between rows; heads of one row are query_dim() apart
  float* out;                // [rows][heads_per_kv] vectors of v_dim floats
  int64_t out_row_stride;
  int64_t rows;
  const int64_t* positions;  // [rows]
  int heads_per_kv;
  int k_dim;
  int v_dim;
  KvType k_type;
  KvType v_type;
  float scale;
  int64_t window;
  // By first position; the runs of a row do not overlap. They may start after the first visible
  // position only where the cache has dropped positions.
  std::span<const KvRun> runs;
  std::span<const HiddenPositions> hidden = {};
  // Gemma 2 (arXiv 2408.00118): cap(s) = score_cap * tanh(s / score_cap), within score_cap * 2^-21;
  // 0: cap(s) = s.
  float score_cap = 0;
  // ALiBi (arXiv 2108.12409): the slope of each head, which every position away takes off the
  // score; null: nothing.
  const float* bias_slopes = nullptr;  // [heads_per_kv]
  const float* sinks = nullptr;        // [heads_per_kv]; null: none
  DistanceBias distance_bias = {};
  // [rows], the positions from which distances count, where they are not `positions`, because a row
  // sees later ones, too; null: they are.
  const int64_t* origins = nullptr;
  // The bit of the task's first row in KvRun::rows and HiddenPositions::rows.
  int64_t mask_row = 0;
  WindowKind window_kind = WindowKind::kSliding;
  AttentionSlice slice = {};
  std::span<std::byte> scratch;  // attention_scratch_bytes, private to the thread, 64-byte aligned
  KeyForm key_form = KeyForm::kStored;
  // The size of the pass that the rows belong to. Products of a pass with many tokens may have an
  // arithmetic of their own (KernelTable::many_form), with errors of at most 2^-15 of a product
  // with f16 values and 2^-22 of one with f32.
  TokenCount count = TokenCount::kFew;

  int query_dim() const { return key_form == KeyForm::kValueFirst ? v_dim + k_dim : k_dim; }
  int64_t OriginOf(int64_t row) const { return origins != nullptr ? origins[row] : positions[row]; }
};

}  // namespace kvant::cpu
