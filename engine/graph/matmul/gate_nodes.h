// Gates that are nodes of their own: gates of an attention's result, which come out of the matrix
// of its queries, and gates that multiply inputs of a layer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cpu/kernels/activation.h"
#include "engine/graph/activations.h"
#include "engine/graph/plan.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

// `in` has a query and a gate for each head in turn, then `rest` columns. `qkv` becomes the queries
// and the rest, `gates` the gates of all heads.
struct SplitGates {
  int64_t heads = 0;
  int64_t dim = 0;  // of a query and of a gate
  int64_t rest = 0;
};
std::unique_ptr<Node> MakeSplitGates(std::string name, const SplitGates& split, ValueId in,
                                     ValueId qkv, ValueId gates);

// out = in * activation(gates), as floats and quantized as far as `out` asks. `in` may be
// out.floats, and is undefined afterwards. The gates are columns of a value from `first` on, which
// are undefined afterwards: as many as `in` has, or fewer, each of which multiplies equally many
// columns in turn.
struct ResultGates {
  cpu::Activation activation = cpu::Activation::kSigmoid;
  ValueId value = kNoValue;
  int64_t first = 0;
  int64_t count = 0;
};
std::unique_ptr<Node> MakeResultGate(const cpu::KernelTable& kernels, std::string name,
                                     const ResultGates& gates, ValueId in, const Activations& out);

// out = activation(in) * the columns of `factors` from `first_factor` on, as floats and quantized
// as far as `out` asks. Afterwards `in` is undefined.
std::unique_ptr<Node> MakeActivatedProduct(const cpu::KernelTable& kernels, std::string name,
                                           cpu::Activation activation, ValueId in, ValueId factors,
                                           int64_t first_factor, const Activations& out);

}  // namespace kvant::graph
