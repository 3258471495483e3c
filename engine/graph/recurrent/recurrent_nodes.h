// The nodes of recurrent layers. What such a layer keeps is one state of a fixed number of floats
// for each sequence (CacheLayer::state_floats): a pass reads the state before its rows and leaves
// the one after them elsewhere, so that it can be undone. Without a cache every pass begins before
// the first position.
//
// A part's rows are computed one after the other where they depend on each other, and columns that
// do not are cut into shares: neither the number of threads nor the passes that a prompt is cut
// into change a bit of a state.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cpu/kernels/activation.h"
#include "cpu/kernels/recurrence.h"
#include "engine/graph/activations.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/norm.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

// Where a layer's state lies: its cache layer, and the floats of that before this one.
struct StateSlice {
  int cache_id = 0;
  int64_t offset = 0;
};

// Multiplies, in rows of floats, the `cols` columns from `target` on by the columns from `factor`
// on.
std::unique_ptr<Node> MakeMultiplyColumns(std::string name, ValueId values, int64_t target,
                                          int64_t factor, int64_t cols);

// A convolution of each column over `taps` rows, each `dilation` rows behind the one before:
//   out[c] = gate[c] * activation(bias[c] + sum over taps of weight * in[c])
// whose state is the last history() rows of `in`. In an encoder some of the rows follow the present
// one, and there is no state.
struct CausalConv {
  static constexpr int64_t kNoGate = -1;

  int64_t taps = 0;
  int64_t dilation = 1;
  int64_t ahead = 0;  // taps of rows behind the present one
  int64_t cols = 0;
  int64_t first = 0;       // of the columns of `in`
  int64_t gate = kNoGate;  // the first of the columns of `in` that are the gate
  std::optional<cpu::Activation> activation = {};
  WeightVector weights = {};  // [taps][cols], that of the last row last
  WeightVector bias = {};     // [cols]; empty: none

  int64_t history() const { return (taps - 1) * dilation; }
  int64_t state_floats() const { return history() * cols; }
};
std::unique_ptr<Node> MakeCausalConv(const cpu::KernelTable& kernels, std::string name,
                                     CausalConv conv, StateSlice state, ValueId in,
                                     const Activations& out);

// The inputs of a gated delta net's scan. `qkv` becomes [key_heads] queries, as many keys and the
// values; each query and key is divided by its length, each query also by sqrt(key_dim). `out`
// becomes exp(rate * softplus(decay column of `in` + bias)) for each value head, and then
// sigmoid(gain column of `in`) for each value head.
struct DeltaGates {
  int64_t key_heads = 0;
  int64_t key_dim = 0;
  std::vector<int64_t> decay_columns = {};  // [value heads]
  std::vector<int64_t> gain_columns = {};
  WeightVector rates = {};
  WeightVector biases = {};
};
std::unique_ptr<Node> MakeDeltaGates(const cpu::KernelTable& kernels, std::string name,
                                     DeltaGates gates, ValueId in, ValueId qkv, ValueId out);

// The inputs of a scan by kKda. `qkv` becomes queries, keys and values of all heads, as in
// DeltaGates; `out` becomes the decays of all keys (cpu::KeyDecayTask) and then sigmoid(gain) of
// each head.
struct KdaGates {
  int64_t heads = 0;
  int64_t head_dim = 0;
  float bound = 0;           // of the decays' logarithms, below 0; 0: none
  WeightVector rates = {};   // [heads]
  WeightVector biases = {};  // [heads * head_dim]
  ValueId decays = kNoValue;
  int64_t first_decay = 0;  // the first column
  ValueId gains = kNoValue;
  int64_t first_gain = 0;
};
std::unique_ptr<Node> MakeKdaGates(const cpu::KernelTable& kernels, std::string name,
                                   KdaGates gates, ValueId qkv, ValueId out);

// The inputs of Mamba 2's scan besides x, b and c. `out` becomes exp(rate * step) for each head,
// and then the step, softplus(column of `in` + bias), for each head.
struct StepGates {
  int64_t first = 0;        // the first column of `in`
  WeightVector rates = {};  // [heads]
  WeightVector biases = {};
};
std::unique_ptr<Node> MakeStepGates(std::string name, StepGates gates, ValueId in, ValueId out);

// A state [depth][cols] for each head, by cpu::ScanRule. It lies as panels of cpu::kScanColumns
// columns, head by head.
struct ScanShape {
  cpu::ScanRule rule;
  int64_t heads = 0;
  int64_t depth = 0;  // of queries and keys
  int64_t cols = 0;   // of values and results
  // The first columns of queries, keys and values.
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t values = 0;
  std::vector<int64_t> key_heads = {};  // [heads]: whose query and key each head has
  WeightVector skips = {};              // [heads]: times the value, is added to the result
  WeightVector bonus = {};              // [heads][depth], of kWkv6

  // Whether each number of a key has a decay, and each head a gain.
  bool has_key_decays() const {
    return rule != cpu::ScanRule::kAdd && rule != cpu::ScanRule::kDelta;
  }
  bool has_gains() const { return rule != cpu::ScanRule::kWkv6 && rule != cpu::ScanRule::kWkv7; }
  int64_t decays() const { return heads * (has_key_decays() ? depth : 1); }
  int64_t panels() const { return (cols + cpu::kScanColumns - 1) / cpu::kScanColumns; }
  int64_t panel_floats() const { return depth * cpu::kScanColumns; }
  int64_t state_floats() const { return heads * panels() * panel_floats(); }
};
struct ScanValues {
  ValueId in = kNoValue;     // queries, keys and values
  ValueId gates = kNoValue;  // [heads] or [heads][depth] decays, then [heads] gains if there are
  ValueId out = kNoValue;    // [heads][cols]
  // [heads][depth] erasers, then as many writers, for kWkv7.
  ValueId erasers = kNoValue;
};
std::unique_ptr<Node> MakeScan(const cpu::KernelTable& kernels, std::string name, ScanShape shape,
                               StateSlice state, const ScanValues& values);

// Computes log(1 + exp(x)) in place, in the columns [0, cols).
std::unique_ptr<Node> MakeSoftplus(std::string name, ValueId values, int64_t cols);

// The scan of Mamba 1: a state [depth] for each column, with steps of its own. It lies as panels of
// cpu::kScanColumns columns, each [depth][kScanColumns].
struct SelectiveScan {
  int64_t cols = 0;
  int64_t depth = 0;
  int64_t b = 0;  // the first columns of b and c in `parameters`
  int64_t c = 0;
  WeightVector rates = {};  // [cols][depth]
  WeightVector skips = {};  // [cols]

  int64_t panels() const { return (cols + cpu::kScanColumns - 1) / cpu::kScanColumns; }
  int64_t panel_floats() const { return depth * cpu::kScanColumns; }
  int64_t state_floats() const { return panels() * panel_floats(); }
};
struct SelectiveScanValues {
  ValueId x = kNoValue;           // [cols]
  ValueId steps = kNoValue;       // [cols]
  ValueId parameters = kNoValue;  // b and c
  ValueId out = kNoValue;         // [cols]
};
std::unique_ptr<Node> MakeSelectiveScan(const cpu::KernelTable& kernels, std::string name,
                                        const SelectiveScan& scan, StateSlice state,
                                        const SelectiveScanValues& values);

enum class GateOrder : uint8_t { kAfterNorm, kBeforeNorm };

// out = norm of each piece of `in` * activation(gate), or norm of each piece of in *
// activation(gate). `in` is overwritten.
struct GatedNorm {
  Norm norm = {};      // of one piece, or of all; without weights: none
  int64_t pieces = 1;  // of the columns of `in`
  int64_t gate = 0;    // the first column of `gates`
  GateOrder order = GateOrder::kAfterNorm;
  cpu::Activation activation = cpu::Activation::kSilu;
};
std::unique_ptr<Node> MakeGatedNorm(const cpu::KernelTable& kernels, std::string name,
                                    GatedNorm norm, ValueId in, ValueId gates,
                                    const Activations& out);

}  // namespace kvant::graph
