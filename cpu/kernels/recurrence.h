// Recurrent layers: convolutions over the last rows, and scans that carry a state from row to row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kv_format_list.h"

namespace kvant::cpu {

// out[c] = bias[c] + the sum over taps of weights[tap][c] * rows[tap][c]: the last of `taps` rows
// is the present one.
struct ConvTask {
  const float* const* rows;  // [taps], of `cols` values each, the oldest first
  const float* weights;      // [taps][weight_stride]
  int64_t weight_stride;
  const float* bias;  // null: zeros
  int64_t taps;
  int64_t cols;
  float* out;  // none of the rows
};

enum class ScanRule : uint8_t {
  kAdd,    // state = decay * state + key (x) gain * value
  kDelta,  // state = decay * state + key (x) gain * (value - key . decay * state)
  kKda,    // kDelta with a decay for each number of a key (Kimi delta attention)
  // RWKV 6 and 7, which have a decay for each number of a key. The first reads the state before it
  // changes: out = query . (state + bonus * key (x) value).
  kWkv6,  // state = decays * state + key (x) value
  kWkv7,  // state = decays * state + key (x) value + writer (x) (eraser . state)
};

// Columns of a state that one call takes, which depend on no others.
inline constexpr int64_t kScanColumns = 16;

// The longest keys of kKda, for which a kernel has a vector of its own.
inline constexpr int64_t kKdaDepthMax = 4096;

// Each row in turn updates the state, [depth][kScanColumns], by its rule; then out = query . state.
// A state of F16 is rounded after each row (to nearest even, clamped to the finite range), so that
// its bits do not depend on how rows are cut into tasks either; out comes from the state before it
// is rounded.
struct ScanTask {
  ScanRule rule;
  int64_t rows;
  int64_t depth;         // of keys and queries
  int64_t cols;          // of values and results, at most kScanColumns
  const float* keys;     // row t at keys + t * key_stride
  const float* queries;  // likewise, with the same stride
  int64_t key_stride;
  const float* values;
  int64_t value_stride;
  const float* decays;  // one for each row, or [depth] for each
  const float* gains;   // one for each row, with the same stride; of kAdd, kDelta and kKda
  int64_t gate_stride;
  void* state;  // of state_type; columns beyond `cols` are zeros and stay so
  float* out;
  int64_t out_stride;
  const float* bonus = nullptr;    // [depth], of kWkv6
  const float* erasers = nullptr;  // [depth] for each row, of kWkv7
  const float* writers = nullptr;  // likewise, with the same stride
  int64_t eraser_stride = 0;
  KvType state_type = KvType::kF32;  // or kF16
};

// The decays of keys, out[c] = exp(rate * softplus(x)) or, with a bound, which is below 0,
// exp(bound * sigmoid(rate * x)), of x = in[c] + biases[c].
struct KeyDecayTask {
  const float* in;
  const float* biases;
  float rate;
  float bound;  // 0: none
  int64_t cols;
  float* out;  // may be `in`
};

// The scan of Mamba 1, whose steps differ from column to column. For each row in turn and each
// column, the state, [depth][kScanColumns], becomes exp(step * rate) * state + b * step * x; then
// out = c . state + skip * x. All columns have the same b and c; each value of the state has a rate
// of its own.
struct SelectiveScanTask {
  int64_t rows;
  int64_t depth;  // of b and c
  int64_t cols;   // at most kScanColumns
  const float* x;
  int64_t x_stride;
  const float* steps;
  int64_t step_stride;
  const float* b;
  const float* c;
  int64_t bc_stride;
  const float* rates;  // [depth][kScanColumns]; zeros in columns beyond `cols`
  const float* skips;  // [cols]
  void* state;         // of state_type, as in ScanTask
  float* out;
  int64_t out_stride;
  KvType state_type = KvType::kF32;  // or kF16
};

}  // namespace kvant::cpu
