// The operations of hyper-connections of low rank, which stand in place of the norms around the
// blocks of a layer (Qwen 3.8 Flash-Next, the class Qwen4ExpTextGatedResidual of transformers). A
// token has several streams s[0] to s[n - 1] of the same size; a block reads one row of them:
//   z = s[j] / sqrt(mean(s[j]^2) + epsilon) * weight[j], for each stream
//   x = mean over j of sigmoid(gates[j]) * z[j]     gates = up . silu(down . z / n)
//   s[j] += 2 * sigmoid(shares[j]) * block(x)       shares = inject . z / n
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/graph/activations.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/norm.h"
#include "engine/graph/rowwise/stream_nodes.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

// Every stream = x.
std::unique_ptr<Node> MakeRepeatStreams(const StreamShape& shape, ValueId x, ValueId streams);

// out = `pieces` equal pieces of `in`, each normed by its part of the weights, as floats and
// quantized as far as `out` asks; there are floats.
std::unique_ptr<Node> MakeNormOfPieces(const cpu::KernelTable& kernels, std::string name, Norm norm,
                                       int64_t pieces, ValueId in, const Activations& out);

// x = mean over the streams of sigmoid(gates) * normed; [count][dim] each. Afterwards `gates` is
// undefined.
std::unique_ptr<Node> MakeMixStreams(const cpu::KernelTable& kernels, std::string name,
                                     const StreamShape& shape, ValueId gates, ValueId normed,
                                     ValueId x);

// streams[j] += 2 * sigmoid(column first + j of `shares`) * in.
std::unique_ptr<Node> MakeInjectIntoStreams(std::string name, const StreamShape& shape,
                                            ValueId shares, int64_t first, ValueId in,
                                            ValueId streams);

}  // namespace kvant::graph
