// Nodes of a model with several streams (alternating updates, Baykal et al. 2023, arXiv
// 2301.13310): layers compute on one row x of a token, and streams s[0] to s[n - 1] of the same
// size follow by factors that depend on the token:
//   predict   s[j] += sum over i of p[j][i] * s[i];  x = s[0]     p = predict_coef . tanh(router)
//   correct   s[j] += (1 + c[j]) * (x - s[0]);  x = s[0]          c = correct_coef . tanh(router)
// Before the first layer s[0] is x and the others are products of it, each as long as x; behind the
// last one x is the mean of s[0] and of products of the others, each as long as s[0].
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

// A row of a value with all streams is [count][dim].
struct StreamShape {
  int64_t count = 0;
  int64_t dim = 0;

  int64_t columns() const { return count * dim; }
  int64_t other_columns() const { return (count - 1) * dim; }  // of all streams but the first
};
inline constexpr int64_t kStreamsMax = 16;

// streams = x, then each of the vectors of `products`, [count - 1][dim], as long as x.
std::unique_ptr<Node> MakeBeginStreams(const StreamShape& shape, ValueId x, ValueId products,
                                       ValueId streams);

// x = the mean of the first stream and of the vectors of `products`, each as long as it.
std::unique_ptr<Node> MakeEndStreams(const StreamShape& shape, ValueId streams, ValueId products,
                                     ValueId x);

// As above; `coefs` is [count * count][count], `router` has `count` values.
std::unique_ptr<Node> MakePredictStreams(std::string name, const StreamShape& shape,
                                         WeightVector coefs, ValueId router, ValueId streams,
                                         ValueId x);

// As above; `coefs` is [count][count]. x is multiplied by `scale`, [dim], unless that is empty.
std::unique_ptr<Node> MakeCorrectStreams(std::string name, const StreamShape& shape,
                                         WeightVector coefs, WeightVector scale, ValueId router,
                                         ValueId x, ValueId streams);

// Every stream but the first += in.
std::unique_ptr<Node> MakeAddToStreams(std::string name, const StreamShape& shape, ValueId in,
                                       ValueId streams);

// Gates a feed-forward with few active gates: gate_up = [cols] gates, [cols] ups; out =
// activation(max(0, gate - mean - deviation * scale)) * up, with mean and standard deviation
// (divided by cols) of the row's gates, as floats and quantized as far as `out` asks. Afterwards
// gate_up is undefined.
std::unique_ptr<Node> MakeSparseGate(const cpu::KernelTable& kernels, std::string name,
                                     cpu::Activation activation, float scale, ValueId gate_up,
                                     const Activations& out);

}  // namespace kvant::graph
