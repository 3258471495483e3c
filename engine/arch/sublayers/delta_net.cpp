#include "engine/arch/sublayers/delta_net.h"

#include <cmath>

#include "base/result.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/arch/sublayers/conv_weights.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/recurrent/recurrent_nodes.h"

namespace kvant::arch {
namespace {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

constexpr int64_t kUsualInterval = 4;

// The columns of q, k, v, z, alpha and beta in the row of their product.
struct DeltaColumns {
  explicit DeltaColumns(const DeltaNet& net)
      : gate(net.qkv_columns()),
        scalars(gate + net.value_columns()),
        all(scalars + 2 * net.value_heads) {}
  int64_t gate;
  int64_t scalars;
  int64_t all;
};

// The matrices that multiply the input, in the order of the columns.
Result<std::vector<MatMulOperand>> InputOperands(const DeltaNet& net, SublayerBuilder& builder) {
  const bool fused = builder.plan().Find(builder.Name("ssm_ba.weight")) != nullptr;
  std::vector<StackedMatrix> matrices = {{"attn_qkv", net.qkv_columns()},
                                         {"attn_gate", net.value_columns()}};
  if (fused) {
    matrices.push_back({"ssm_ba", 2 * net.value_heads});
  } else {
    matrices.push_back({"ssm_beta", net.value_heads});
    matrices.push_back({"ssm_alpha", net.value_heads});
  }
  return builder.Separate(builder.dim(), matrices);
}

// Where alpha and beta of each head lie. A fused matrix has, for each key head, the betas of its
// value heads and then the alphas.
void PlaceScalars(const DeltaNet& net, bool fused, int64_t first, graph::DeltaGates& gates) {
  const int64_t per_key = net.value_heads / net.key_heads;
  for (int64_t head = 0; head < net.value_heads; ++head) {
    const int64_t group = head / per_key;
    const int64_t within = group * 2 * per_key + head % per_key;
    gates.gain_columns.push_back(first + (fused ? within : head));
    gates.decay_columns.push_back(first + (fused ? within + per_key : net.value_heads + head));
  }
}

graph::ScanShape ShapeOf(const DeltaNet& net) {
  graph::ScanShape shape = {.rule = cpu::ScanRule::kDelta,
                            .heads = net.value_heads,
                            .depth = net.key_dim,
                            .cols = net.value_dim,
                            .queries = 0,
                            .keys = net.key_columns(),
                            .values = 2 * net.key_columns()};
  for (int64_t head = 0; head < net.value_heads; ++head) {
    shape.key_heads.push_back(net.KeyHead(head));
  }
  return shape;
}

}  // namespace

Status DeltaNet::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  const DeltaColumns columns(*this);
  const StackedMatrix out_matrix[] = {{"ssm_out", builder.dim()}};
  KVANT_ASSIGN(std::vector<MatMulOperand> in_operands, InputOperands(*this, builder));
  KVANT_ASSIGN(std::vector<MatMulOperand> out_operands,
               builder.Separate(value_columns(), out_matrix));
  KVANT_ASSIGN(graph::CausalConv conv,
               ReadConvWeights(plan, builder.Name("ssm_conv1d"), taps, qkv_columns()));
  conv.activation = cpu::Activation::kSilu;
  graph::DeltaGates gates = {.key_heads = key_heads, .key_dim = key_dim};
  PlaceScalars(*this, in_operands.size() == 3, columns.scalars, gates);
  KVANT_ASSIGN(gates.rates, plan.Vector(builder.Name("ssm_a"), value_heads));
  KVANT_ASSIGN(gates.biases, plan.Vector(builder.Name("ssm_dt.bias"), value_heads));
  graph::GatedNorm norm = {.pieces = value_heads, .gate = columns.gate};
  norm.norm.epsilon = norm_epsilon;
  norm.activation = gate_activation;
  KVANT_ASSIGN(norm.norm.weight, plan.Vector(builder.Name("ssm_norm.weight"), value_dim));

  const graph::ScanShape shape = ShapeOf(*this);
  const int64_t conv_floats = conv.state_floats();
  const int cache_id = plan.plan().AddCacheLayer(
      {.state_floats = conv_floats + shape.state_floats(), .scan_floats = shape.state_floats()});
  KVANT_ASSIGN(const Activations normed, builder.AddInput("ssm_normed", in_operands));
  const std::string in_name = builder.Name("ssm_in");
  const ValueId in = plan.NewFloats(in_name, RowSpace::kPass, columns.all);
  plan.AddMatMul(RowSpace::kPass, in_name, std::move(in_operands), normed, in, cpu::Store::kSet);
  const std::string conv_name = builder.Name("ssm_conv1d");
  const ValueId qkv = plan.NewFloats(conv_name, RowSpace::kPass, qkv_columns());
  plan.Add(RowSpace::kPass,
           graph::MakeCausalConv(plan.kernels(), conv_name, std::move(conv), {cache_id, 0}, in,
                                 {.floats = qkv, .cols = qkv_columns()}));
  const ValueId scalars =
      plan.NewFloats(builder.Name("ssm_gates"), RowSpace::kPass, 2 * value_heads);
  plan.Add(RowSpace::kPass, graph::MakeDeltaGates(plan.kernels(), builder.Name("ssm_gates"),
                                                  std::move(gates), in, qkv, scalars));
  const ValueId scanned =
      plan.NewFloats(builder.Name("ssm_scan"), RowSpace::kPass, value_columns());
  plan.Add(RowSpace::kPass,
           graph::MakeScan(plan.kernels(), builder.Name("ssm_scan"), shape, {cache_id, conv_floats},
                           {.in = qkv, .gates = scalars, .out = scanned}));
  const Activations result = plan.NewActivations(builder.Name("ssm_gated"), RowSpace::kPass,
                                                 value_columns(), out_operands);
  plan.Add(RowSpace::kPass, graph::MakeGatedNorm(plan.kernels(), builder.Name("ssm_norm"),
                                                 std::move(norm), scanned, in, result));
  return builder.AddToStream("ssm_out", std::move(out_operands), result);
}

Result<DeltaNet> ReadDeltaNet(const Metadata& metadata, ValueHeads order, float norm_epsilon) {
  DeltaNet net;
  net.order = order;
  net.norm_epsilon = norm_epsilon;
  KVANT_ASSIGN(net.taps, ReadConvTaps(metadata, "ssm.conv_kernel"));
  KVANT_ASSIGN(net.key_heads, metadata.Count("ssm.group_count", kHeadsMax));
  KVANT_ASSIGN(net.value_heads, metadata.Count("ssm.time_step_rank", kHeadsMax));
  KVANT_ASSIGN(net.key_dim, metadata.Count("ssm.state_size", kHeadDimMax));
  KVANT_ASSIGN(const int64_t inner, metadata.Count("ssm.inner_size", kDimMax));
  if (net.value_heads % net.key_heads != 0) {
    return MakeError(
        ErrorCode::kCorrupt, "{}: key {}: expected a multiple of {} key heads, found {}",
        metadata.file().path(), metadata.Key("ssm.time_step_rank"), net.key_heads, net.value_heads);
  }
  if (inner % net.value_heads != 0 || inner / net.value_heads > int64_t{kHeadDimMax}) {
    return MakeError(
        ErrorCode::kCorrupt, "{}: key {}: expected a multiple of {} value heads, found {}",
        metadata.file().path(), metadata.Key("ssm.inner_size"), net.value_heads, inner);
  }
  net.value_dim = inner / net.value_heads;
  return net;
}

Result<std::vector<bool>> ReadAttentionInterval(const Metadata& metadata, size_t layers) {
  KVANT_ASSIGN(const int64_t interval,
               metadata.CountOr("full_attention_interval", kLayersMax, kUsualInterval));
  std::vector<bool> attention(layers);
  for (size_t i = 0; i < layers; ++i) {
    attention[i] = (static_cast<int64_t>(i) + 1) % interval == 0;
  }
  KVANT_ASSIGN(const auto recurrent, metadata.FlagPerLayer("attention.recurrent_layers", layers));
  if (!recurrent.has_value() && metadata.Has("attention.recurrent_layers")) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {} booleans, found a number",
                     metadata.file().path(), metadata.Key("attention.recurrent_layers"), layers);
  }
  if (!recurrent.has_value()) return attention;
  for (size_t i = 0; i < layers; ++i) {
    if (metadata.Has("full_attention_interval") && attention[i] == (*recurrent)[i]) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: key {}: layer {}: expected what full_attention_interval {} makes it, "
                       "found {}",
                       metadata.file().path(), metadata.Key("attention.recurrent_layers"), i,
                       interval, (*recurrent)[i] ? "a recurrent layer" : "attention");
    }
    attention[i] = !(*recurrent)[i];
  }
  return attention;
}

}  // namespace kvant::arch
