// The nodes of RWKV's layers besides products, norms and the scan: mixes of a row with the one
// before it, and what the recurrence of RWKV 7 needs and gives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/activations.h"
#include "engine/graph/plan.h"
#include "engine/graph/recurrent/recurrent_nodes.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

// Mixes each row with the row before it in its sequence, which is zeros before the first row:
//   out = row + (factors + deltas) * (row before - row)
// Its state is the last row, [cols]. Of several nodes with the same state, one keeps it.
struct TokenMix {
  struct Target {
    WeightVector factors;   // [cols]
    Activations out;        // floats, quantized, or both
    int64_t delta_col = 0;  // the first of the columns of `deltas`
  };
  enum class Keeps : uint8_t { kNothing, kLastRow };

  int64_t cols = 0;
  StateSlice state = {};
  Keeps keeps = Keeps::kLastRow;
  ValueId deltas = kNoValue;  // kNoValue: none
  std::vector<Target> targets = {};
};
std::unique_ptr<Node> MakeTokenMix(const cpu::KernelTable& kernels, std::string name, TokenMix mix,
                                   ValueId in);

// Makes the inputs of RWKV 7's scan from `rkv`, the queries, keys and values of all heads, and from
// `rates`, which are as wide as the keys of all heads:
//   u = key * erased, over its length in each head; erasers = -u, writers = u * rates
//   key = key * (1 + kept * (rates - 1))
//   value = value + mixes * (first value - value)
// In the first layer, which has no mixes, the values become the first ones.
struct Wkv7Inputs {
  int64_t heads = 0;
  int64_t head_dim = 0;
  WeightVector erased = {};  // [heads * head_dim]
  WeightVector kept = {};    // likewise
  ValueId rkv = kNoValue;
  ValueId rates = kNoValue;
  ValueId mixes = kNoValue;         // kNoValue in the first layer
  ValueId first_values = kNoValue;  // [heads * head_dim]
  ValueId erasers = kNoValue;       // [heads * head_dim] erasers, as many writers
};
std::unique_ptr<Node> MakeWkv7Inputs(const cpu::KernelTable& kernels, std::string name,
                                     Wkv7Inputs inputs);

// out = (in + bonus of each head * its value) * gates, where the bonus is the sum of query * key *
// weights. `in` is overwritten.
struct Wkv7Result {
  int64_t heads = 0;
  int64_t head_dim = 0;
  WeightVector weights = {};  // [heads * head_dim]
  ValueId rkv = kNoValue;
  ValueId gates = kNoValue;
  ValueId in = kNoValue;
};
std::unique_ptr<Node> MakeWkv7Result(const cpu::KernelTable& kernels, std::string name,
                                     Wkv7Result result, const Activations& out);

}  // namespace kvant::graph
