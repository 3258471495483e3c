// The nodes that compute row by row: embeddings, norms, activations, positions, conversions. A
// node's work is split over the team by rows or columns, never along a sum, so the number of
// threads does not change a bit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cpu/kernels/activation.h"
#include "engine/graph/activations.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/norm.h"
#include "formats/gguf.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

class MatMulObserver;

// out = scale * the rows of the embedding table for the pass's tokens.
std::unique_ptr<Node> MakeEmbed(const formats::GgufTensor& table, float scale, ValueId out);

// Gathers the inputs of a convolution over three neighbours as rows for a product: column 3 c + t
// of row r is value c of row `stride` r + t - 1 of `in`, and 0 before the first row and behind the
// last. `in` has `cols` columns.
std::unique_ptr<Node> MakeGatherTaps(std::string name, ValueId in, int64_t cols, int64_t stride,
                                     ValueId out);
// Gathers, with stride 1, from the pass's frames of `cols` values.
std::unique_ptr<Node> MakeGatherFrames(std::string name, int64_t cols, ValueId out);

// Writes the cosines of a position's angles, and then their sines.
void WriteCosSin(const RopeAngles& angles, int64_t position, float* cos_sin);

// cos_sin = [n_rot / 2] cosines and [n_rot / 2] sines of every row's position, by the angles
// PassContext::ropes[rope].
std::unique_ptr<Node> MakeRopeTable(size_t rope, int64_t n_rot, ValueId cos_sin);

// out += rows of `table` by the position of each row: positions that a model has learned.
std::unique_ptr<Node> MakeAddPositions(const formats::GgufTensor& table, ValueId out);

// out += rows of `table` by the segment of each row's token: PassContext::token_types.
std::unique_ptr<Node> MakeAddTokenTypes(const formats::GgufTensor& table, ValueId out);

// out += vector, of every row; `vector` has as many values as a row of `out`.
std::unique_ptr<Node> MakeAddVector(std::string name, std::vector<float> vector, ValueId out);

// out = norm of `in`, as floats and quantized as far as `out` asks. `in` may be out.floats.
std::unique_ptr<Node> MakeNorm(const cpu::KernelTable& kernels, std::string name, Norm norm,
                               ValueId in, const Activations& out);

// out += scale * norm of `in`, which is overwritten.
std::unique_ptr<Node> MakeAddNorm(const cpu::KernelTable& kernels, std::string name, Norm norm,
                                  int64_t cols, float scale, ValueId in, ValueId out);

// Norms, in place, `pieces` equal pieces of the columns [first, first + norm.cols()) of `values`,
// each with weights of its own.
std::unique_ptr<Node> MakeNormPieces(const cpu::KernelTable& kernels, std::string name, Norm norm,
                                     int64_t first, int64_t pieces, ValueId values);

// out = [norm of `token`, norm of the row before]. The row before is the one of `hidden` at the
// position before; where that is in an earlier pass, or `hidden` is no value, it is one of
// PassContext::hidden. Where there is none, zeros stand for its norm.
std::unique_ptr<Node> MakePairWithHidden(const cpu::KernelTable& kernels, std::string name,
                                         Norm of_token, Norm of_hidden, ValueId token,
                                         ValueId hidden, ValueId out);

// out.int8 = quantized form of out.floats.
std::unique_ptr<Node> MakeQuantize(const cpu::KernelTable& kernels, std::string name,
                                   const Activations& activations);

// Hands in.floats to the observer, which must outlive the node.
std::unique_ptr<Node> MakeObserve(MatMulObserver& observer, std::string name,
                                  const Activations& in);

// out = activation(in), [cols], as floats and quantized as far as `out` asks. Afterwards `in` is
// undefined.
std::unique_ptr<Node> MakeActivate(const cpu::KernelTable& kernels, std::string name,
                                   cpu::Activation activation, ValueId in, const Activations& out);

// Changes rows of `cols` floats: values = factor * values; values within [-limit, limit].
std::unique_ptr<Node> MakeScale(std::string name, float factor, ValueId values, int64_t cols);
std::unique_ptr<Node> MakeClamp(std::string name, float limit, ValueId values, int64_t cols);

// values = cap * tanh(values / cap), in rows of `cols` floats.
std::unique_ptr<Node> MakeCap(const cpu::KernelTable& kernels, std::string name, float cap,
                              ValueId values, int64_t cols);

// out = `cols` columns from `first` on of the rows PassContext::head of `in`.
std::unique_ptr<Node> MakeSelectRows(ValueId in, ValueId out, int64_t cols, int64_t first = 0);

}  // namespace kvant::graph
