// The operations that plans are made of. Each node says which values it reads and writes; its work
// is split over the team by rows, heads or output columns, never along a sum, so the number of
// threads does not change a bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cpu/float_gemm.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/matmul.h"
#include "cpu/kernels/rope.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/norm.h"
#include "engine/graph/rowwise/rope.h"
#include "formats/gguf.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

class MatMulObserver;

// Sizes of latent attention (latent_nodes.h): a query head has `nope` numbers that are not rotated
// and then `rope` that are; a position has a latent and `rope` rotated numbers.
struct LatentShape {
  int64_t heads = 0;
  int64_t nope = 0;
  int64_t rope = 0;
  int64_t latent = 0;
  int64_t v_dim = 0;  // of what a head gives
  // An observer wants to see what the matrices of the absorbed form are multiplied with.
  bool always_absorbed = false;
  int cache_id = 0;  // of the layer

  int64_t head_dim() const { return nope + rope; }
  int64_t row_dim() const { return latent + rope; }
};

enum class LatentForm : uint8_t { kAbsorbed, kExpanded };

// What distances add to scores: cpu::DistanceBias, of all heads.
struct DistanceTable {
  int64_t least = 0;
  int64_t count = 0;
  std::vector<float> values = {};  // [heads][count + 2 * cpu::kDistancePadding]; empty: nothing
};

// Heads and mask of an attention.
struct AttentionShape {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t window = 0;   // positions a query sees at most, itself included; 0 = all
  float score_cap = 0;  // score = score_cap * tanh(score / score_cap); 0 = no cap
  // ALiBi: what a position back takes off a head's score, [heads]; empty: nothing.
  std::vector<float> bias_slopes = {};
  cpu::WindowKind window_kind = cpu::WindowKind::kSliding;
  // A score of each head that takes part in the softmax and has no value, [heads]; empty: none.
  std::vector<float> sinks = {};
  // Every row sees all positions that the cache layer holds: those of a source.
  bool sees_all = false;
  DistanceTable distances = {};
  // Of latent attention in absorbed form: a key is its value and k_dim more numbers. All heads have
  // the same, so kv_heads only says in how many tasks they are taken.
  std::optional<LatentShape> latent = {};
  bool as_few = false;  // cpu::FloatGemm::as_few

  int64_t query_dim() const { return latent.has_value() ? v_dim + k_dim : k_dim; }
  int64_t HeadsPerKv() const { return heads / kv_heads; }
  // The heads of the cache layer.
  int64_t cached_heads() const { return latent.has_value() ? 1 : kv_heads; }
  // A row of qkv is [heads][k_dim] queries, [kv_heads][k_dim] keys, [kv_heads][v_dim] values.
  int64_t key_column() const { return heads * k_dim; }
  int64_t value_column() const { return key_column() + kv_heads * k_dim; }
  int64_t qkv_columns() const { return value_column() + kv_heads * v_dim; }
  // The first position that a query at `position` sees.
  int64_t FirstVisible(int64_t position) const {
    return cpu::FirstInWindow(window_kind, window, position);
  }
};

// Where the vectors of a row lie. Keys and values are those of a pass without cache.
struct AttentionInput {
  ValueId queries = kNoValue;  // [heads][query_dim] from column 0 on
  ValueId kv = kNoValue;       // kNoValue: those of PassContext::source
  int64_t key_column = 0;
  int64_t value_column = 0;

  std::vector<ValueId> ids() const;
};

// A value as floats and as quantized rows, as far as its readers need them: either may be kNoValue.
struct Activations {
  ValueId floats = kNoValue;
  ValueId int8 = kNoValue;
  int64_t cols = 0;
  std::optional<int> observed = {};  // the observer's number for it; there are floats then
  std::vector<ValueId> ids() const;
};

// A small vector of a model (norm weights, biases), decoded once.
using WeightVector = std::vector<float>;

// One matrix of a MatMulNode, an operand of its product: its rows become columns [out_col, out_col
// + rows) of the output.
struct MatMulOperand {
  const formats::GgufTensor* weight = nullptr;
  WeightVector bias;  // empty = none
  int64_t out_col = 0;
  float scale = 1;  // of the products, before the bias; 1 where they are added to the output
};

// products = products * scale + bias, number by number, rounded twice; bias: as many, or null.
inline void ScaleAndAddBias(std::span<float> products, float scale, const float* bias) {
  if (scale != 1) {
    for (float& product : products) product *= scale;
  }
  if (bias == nullptr) return;
  for (size_t i = 0; i < products.size(); ++i) products[i] += bias[i];
}

// out = scale * the rows of the embedding table for the pass's tokens.
std::unique_ptr<Node> MakeEmbed(const formats::GgufTensor& table, float scale, ValueId out);

// What a convolution over three neighbours reads, as rows for a product: column 3 c + t of row r is
// number c of row `stride` r + t - 1 of `in`, and 0 before the first row and behind the last. `in`
// has `cols` columns.
std::unique_ptr<Node> MakeGatherTaps(std::string name, ValueId in, int64_t cols, int64_t stride,
                                     ValueId out);
// The same, with stride 1, of the pass's frames of `cols` numbers.
std::unique_ptr<Node> MakeGatherFrames(std::string name, int64_t cols, ValueId out);

// cos_sin = [n_rot / 2] cosines and [n_rot / 2] sines of every row's position, by the angles
// PassContext::ropes[rope].
std::unique_ptr<Node> MakeRopeTable(size_t rope, int64_t n_rot, ValueId cos_sin);

// out += rows of `table` by the position of each row: positions that a model has learned.
std::unique_ptr<Node> MakeAddPositions(const formats::GgufTensor& table, ValueId out);

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

// out.int8 = quantized form of out.floats.
std::unique_ptr<Node> MakeQuantize(const cpu::KernelTable& kernels, std::string name,
                                   const Activations& activations);

// out columns = (or +=) the products of all operands with `in`.
std::unique_ptr<Node> MakeMatMul(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm,
                                 std::string name, std::vector<MatMulOperand> operands,
                                 const Activations& in, ValueId out, cpu::Store store);

// Hands in.floats to the observer, which must outlive the node.
std::unique_ptr<Node> MakeObserve(MatMulObserver& observer, std::string name,
                                  const Activations& in);

// RMS norms of every head's query, key and value. A norm whose vector is empty is not computed; one
// that has no weights in the model has a vector of ones here.
struct QkNorms {
  WeightVector query;  // [k_dim]
  WeightVector key;    // [k_dim]
  float epsilon = 0;
  WeightVector value;  // [v_dim]
};

enum class NormOrder : uint8_t { kBeforeRope, kAfterRope };

// What multiplies the queries of a position p, so that attention stays sharp over many positions:
// 1 + scale * ln(1 + floor((p + offset) / length)).
struct QueryTemperature {
  float scale = 0;  // 0: nothing does
  float length = 1;
  float offset = 0;
};

// What happens to every head between the product that makes it and the cache.
struct HeadChanges {
  QkNorms norms;
  NormOrder norm_order = NormOrder::kBeforeRope;
  cpu::RopeStyle rope_style = cpu::RopeStyle::kInterleaved;
  int64_t n_rot = 0;           // the first dimensions of queries and keys are rotated
  ValueId cos_sin = kNoValue;  // by the angles of MakeRopeTable; kNoValue: there is no rotation
  QueryTemperature temperature = {};  // after norms and rotation
  bool values_are_keys = false;       // values are the keys as they are before all of this
  // The row has queries alone, which meet what another attention stores in the cache layer.
  bool queries_only = false;
};

// Applies these changes to the queries, keys and values of qkv in place, and stores keys and values
// in the cache layer `cache_id`.
std::unique_ptr<Node> MakeRopeAndStore(const cpu::KernelTable& kernels, int cache_id,
                                       const AttentionShape& shape, HeadChanges changes,
                                       ValueId qkv);

// out.floats = causal attention of qkv's queries over the cache, [heads][v_dim]; `scale` multiplies
// the products of queries and keys. Where out.int8 is a value the result is quantized, too; the
// shape must be one of QuantizesAttention.
std::unique_ptr<Node> MakeAttention(const cpu::KernelTable& kernels, int cache_id,
                                    const AttentionShape& shape, float scale, ValueId qkv,
                                    const Activations& out);

// The same with the keys and values of another attention, which the cache layer is of.
std::unique_ptr<Node> MakeAttention(const cpu::KernelTable& kernels, int cache_id,
                                    const AttentionShape& shape, float scale,
                                    const AttentionInput& in, const Activations& out);

// Whether what the query heads of one kv head give is a whole number of quantized blocks of values.
bool QuantizesAttention(const AttentionShape& shape);

// gate_up = the products of `operands` with `in`, columns [ffn] gate, [ffn] up, which are one
// operand or two; out = activation(gate) * up, as floats and quantized as far as `out` asks.
// Afterwards gate_up is undefined.
std::unique_ptr<Node> MakeGatedUnit(const cpu::KernelTable& kernels,
                                    const cpu::FloatGemm& float_gemm, std::string name,
                                    std::vector<MatMulOperand> operands, const Activations& in,
                                    cpu::Activation activation, ValueId gate_up,
                                    const Activations& out);

// out = activation(in), [cols], as floats and quantized as far as `out` asks. Afterwards `in` is
// undefined.
std::unique_ptr<Node> MakeActivate(const cpu::KernelTable& kernels, std::string name,
                                   cpu::Activation activation, ValueId in, const Activations& out);

// In rows of `cols` floats: values = factor * values; values within [-limit, limit].
std::unique_ptr<Node> MakeScale(std::string name, float factor, ValueId values, int64_t cols);
std::unique_ptr<Node> MakeClamp(std::string name, float limit, ValueId values, int64_t cols);

// values = cap * tanh(values / cap), in rows of `cols` floats.
std::unique_ptr<Node> MakeCap(const cpu::KernelTable& kernels, std::string name, float cap,
                              ValueId values, int64_t cols);

// out = `cols` columns from `first` on of the rows PassContext::head of `in`.
std::unique_ptr<Node> MakeSelectRows(ValueId in, ValueId out, int64_t cols, int64_t first = 0);

}  // namespace kvant::graph
