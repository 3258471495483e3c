#include "engine/arch/sublayers/kda.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/arch/sublayers/conv_weights.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/recurrent/recurrent_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {
namespace {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

// Columns of a value.
struct Columns {
  ValueId value = graph::kNoValue;
  int64_t first = 0;
};

// A product of one step, whose matrix is among those that multiply the input, or of two, whose
// matrices are here.
struct Projection {
  std::string_view first_name;  // "ssm_f_a"
  std::string_view second_name;
  std::vector<MatMulOperand> first = {};
  std::vector<MatMulOperand> second = {};
};

// Finds the matrices of a projection of two steps, which its first one tells by its rows.
Status FindSteps(const Kda& kda, SublayerBuilder& builder, Projection& projection) {
  const auto* first = builder.plan().Find(builder.Name(projection.first_name) + ".weight");
  const auto* second = builder.plan().Find(builder.Name(projection.second_name) + ".weight");
  const bool narrow = first != nullptr && kda.heads > 1 && first->rows() == kda.head_dim;
  if (second == nullptr && !narrow) return {};
  const StackedMatrix first_matrix[] = {{projection.first_name, kda.head_dim}};
  const StackedMatrix second_matrix[] = {{projection.second_name, kda.columns()}};
  KVANT_ASSIGN(projection.first, builder.Separate(builder.dim(), first_matrix));
  KVANT_ASSIGN(projection.second, builder.Separate(kda.head_dim, second_matrix));
  return {};
}

// The matrices that multiply the input in one product, and where their columns begin.
struct InputProduct {
  std::vector<MatMulOperand> operands;
  int64_t decays = 0;
  int64_t gates = 0;
  int64_t gains = 0;
  int64_t columns = 0;
};

Result<InputProduct> FindInputs(const Kda& kda, const Projection& decays, const Projection& gates,
                                SublayerBuilder& builder) {
  const int64_t columns = kda.columns();
  const StackedMatrix qkv[] = {{"attn_q", columns}, {"attn_k", columns}, {"attn_v", columns}};
  InputProduct product;
  KVANT_ASSIGN(product.operands, builder.Stacked("attn_qkv", builder.dim(), qkv));
  std::vector<StackedMatrix> others;
  int64_t first = 3 * columns;
  product.decays = first;
  if (decays.second.empty()) {
    others.push_back({decays.first_name, columns});
    first += columns;
  }
  product.gates = first;
  if (gates.second.empty()) {
    others.push_back({gates.first_name, columns});
    first += columns;
  }
  product.gains = first;
  others.push_back({"ssm_beta", kda.heads});
  product.columns = first + kda.heads;
  KVANT_ASSIGN(std::vector<MatMulOperand> more, builder.Separate(builder.dim(), others));
  for (MatMulOperand& operand : more) {
    operand.out_col += 3 * columns;
    product.operands.push_back(std::move(operand));
  }
  return product;
}

// The three convolutions as one over the columns of q, k and v.
Result<graph::CausalConv> ReadConvs(const Kda& kda, SublayerBuilder& builder) {
  const int64_t columns = kda.columns();
  graph::CausalConv conv = {.taps = kda.taps, .cols = 3 * columns};
  conv.activation = cpu::Activation::kSilu;
  conv.weights.resize(static_cast<size_t>(kda.taps * conv.cols));
  int64_t first = 0;
  for (const char* name : {"ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v"}) {
    KVANT_ASSIGN(const graph::CausalConv one,
                 ReadConvWeights(builder.plan(), builder.Name(name), kda.taps, columns));
    for (int64_t tap = 0; tap < kda.taps; ++tap) {
      std::copy_n(one.weights.begin() + tap * columns, columns,
                  conv.weights.begin() + tap * conv.cols + first);
    }
    first += columns;
  }
  return conv;
}

// Adds the two products of a projection of two steps; one of one step is `otherwise`.
Columns AddProjection(const Kda& kda, Projection projection, const Activations& in,
                      const Columns& otherwise, SublayerBuilder& builder) {
  if (projection.second.empty()) return otherwise;
  graph::PlanBuilder& plan = builder.plan();
  const std::string first = builder.Name(projection.first_name);
  const std::string second = builder.Name(projection.second_name);
  const ValueId product = plan.NewFloats(first, RowSpace::kPass, kda.head_dim);
  plan.AddMatMul(RowSpace::kPass, first, std::move(projection.first), in, product,
                 cpu::Store::kSet);
  const Activations middle =
      plan.NewActivations(second + ".in", RowSpace::kPass, kda.head_dim, projection.second);
  plan.Add(RowSpace::kPass, graph::MakeNorm(plan.kernels(), second + ".in",
                                            {.kind = graph::NormKind::kNone}, product, middle));
  const ValueId out = plan.NewFloats(second, RowSpace::kPass, kda.columns());
  plan.AddMatMul(RowSpace::kPass, second, std::move(projection.second), middle, out,
                 cpu::Store::kSet);
  return {out, 0};
}

graph::ScanShape ShapeOf(const Kda& kda) {
  graph::ScanShape shape = {.rule = cpu::ScanRule::kKda,
                            .heads = kda.heads,
                            .depth = kda.head_dim,
                            .cols = kda.head_dim,
                            .queries = 0,
                            .keys = kda.columns(),
                            .values = 2 * kda.columns()};
  for (int64_t head = 0; head < kda.heads; ++head) shape.key_heads.push_back(head);
  return shape;
}

// The weights of the gates before the scan.
Result<graph::KdaGates> ReadGates(const Kda& kda, SublayerBuilder& builder) {
  graph::PlanBuilder& plan = builder.plan();
  graph::KdaGates gates = {.heads = kda.heads, .head_dim = kda.head_dim, .bound = kda.bound};
  KVANT_ASSIGN(gates.rates, plan.Vectors(builder.Name("ssm_a"), 1, kda.heads));
  KVANT_ASSIGN(gates.biases, plan.Vector(builder.Name("ssm_dt.bias"), kda.columns()));
  return gates;
}

// Every reader of the input, as the forms that it needs follow from them.
std::vector<MatMulOperand> ReadersOf(const InputProduct& product, const Projection& decays,
                                     const Projection& gates) {
  std::vector<MatMulOperand> readers = product.operands;
  readers.insert(readers.end(), decays.first.begin(), decays.first.end());
  readers.insert(readers.end(), gates.first.begin(), gates.first.end());
  return readers;
}

}  // namespace

Status Kda::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  Projection decays = {"ssm_f_a", "ssm_f_b"};
  Projection gates = {"ssm_g_a", "ssm_g_b"};
  KVANT_TRY(FindSteps(*this, builder, decays));
  KVANT_TRY(FindSteps(*this, builder, gates));
  KVANT_ASSIGN(InputProduct product, FindInputs(*this, decays, gates, builder));
  const StackedMatrix out_matrix[] = {{"attn_output", builder.dim()}};
  KVANT_ASSIGN(std::vector<MatMulOperand> out_operands, builder.Separate(columns(), out_matrix));
  KVANT_ASSIGN(graph::CausalConv conv, ReadConvs(*this, builder));
  KVANT_ASSIGN(graph::KdaGates scan_gates, ReadGates(*this, builder));
  graph::GatedNorm norm = {.pieces = heads, .activation = cpu::Activation::kSigmoid};
  norm.norm.epsilon = norm_epsilon;
  KVANT_ASSIGN(norm.norm.weight, plan.Vector(builder.Name("ssm_norm.weight"), head_dim));

  const graph::ScanShape shape = ShapeOf(*this);
  const int64_t conv_floats = conv.state_floats();
  const int cache_id = plan.plan().AddCacheLayer(
      {.state_floats = conv_floats + shape.state_floats(), .scan_floats = shape.state_floats()});
  KVANT_ASSIGN(const Activations normed,
               builder.AddInput("ssm_normed", ReadersOf(product, decays, gates)));
  const std::string in_name = builder.Name("ssm_in");
  const ValueId in = plan.NewFloats(in_name, RowSpace::kPass, product.columns);
  plan.AddMatMul(RowSpace::kPass, in_name, std::move(product.operands), normed, in,
                 cpu::Store::kSet);
  const Columns decay =
      AddProjection(*this, std::move(decays), normed, {in, product.decays}, builder);
  const Columns gate = AddProjection(*this, std::move(gates), normed, {in, product.gates}, builder);

  const std::string conv_name = builder.Name("ssm_conv1d");
  const ValueId qkv = plan.NewFloats(conv_name, RowSpace::kPass, 3 * columns());
  plan.Add(RowSpace::kPass,
           graph::MakeCausalConv(plan.kernels(), conv_name, std::move(conv), {cache_id, 0}, in,
                                 {.floats = qkv, .cols = 3 * columns()}));
  scan_gates.decays = decay.value;
  scan_gates.first_decay = decay.first;
  scan_gates.gains = in;
  scan_gates.first_gain = product.gains;
  const std::string gates_name = builder.Name("ssm_gates");
  const ValueId scalars = plan.NewFloats(gates_name, RowSpace::kPass, columns() + heads);
  plan.Add(RowSpace::kPass,
           graph::MakeKdaGates(plan.kernels(), gates_name, std::move(scan_gates), qkv, scalars));
  const std::string scan_name = builder.Name("ssm_scan");
  const ValueId scanned = plan.NewFloats(scan_name, RowSpace::kPass, columns());
  plan.Add(RowSpace::kPass,
           graph::MakeScan(plan.kernels(), scan_name, shape, {cache_id, conv_floats},
                           {.in = qkv, .gates = scalars, .out = scanned}));
  norm.gate = gate.first;
  const Activations result =
      plan.NewActivations(builder.Name("ssm_gated"), RowSpace::kPass, columns(), out_operands);
  plan.Add(RowSpace::kPass, graph::MakeGatedNorm(plan.kernels(), builder.Name("ssm_norm"),
                                                 std::move(norm), scanned, gate.value, result));
  return builder.AddToStream("attn_output", std::move(out_operands), result);
}

Result<Kda> ReadKda(const Metadata& metadata, KdaDecays decays, int64_t heads, float norm_epsilon) {
  constexpr const char* kBoundKey = "kda.gate_lower_bound";
  constexpr const char* kSafeKey = "kda.safe_gate";
  Kda kda = {.heads = heads, .norm_epsilon = norm_epsilon};
  KVANT_ASSIGN(kda.taps, ReadConvTaps(metadata, "ssm.conv_kernel"));
  KVANT_ASSIGN(kda.head_dim, metadata.Count("kda.head_dim", kHeadDimMax));
  if (decays == KdaDecays::kFree) return kda;
  KVANT_ASSIGN(const auto safe, metadata.file().GetBool(metadata.Key(kSafeKey)));
  if (!safe.value_or(true)) {
    return MakeError(ErrorCode::kNotSupported, "{}: key {}: false is not supported",
                     metadata.file().path(), metadata.Key(kSafeKey));
  }
  KVANT_ASSIGN(const auto bound, metadata.file().GetF32(metadata.Key(kBoundKey)));
  if (!bound.has_value()) return metadata.Missing(kBoundKey);
  if (!(*bound < 0) || !std::isfinite(*bound)) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected a number below 0, found {}",
                     metadata.file().path(), metadata.Key(kBoundKey), *bound);
  }
  kda.bound = *bound;
  return kda;
}

}  // namespace kvant::arch
