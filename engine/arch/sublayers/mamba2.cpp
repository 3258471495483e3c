#include "engine/arch/sublayers/mamba2.h"

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

Result<graph::ScanShape> ShapeOf(const Mamba2& mamba, SublayerBuilder& builder) {
  graph::ScanShape shape = {.rule = cpu::ScanRule::kAdd,
                            .heads = mamba.heads,
                            .depth = mamba.state_dim,
                            .cols = mamba.head_dim,
                            .queries = mamba.inner() + mamba.groups * mamba.state_dim,
                            .keys = mamba.inner(),
                            .values = 0};
  for (int64_t head = 0; head < mamba.heads; ++head) {
    shape.key_heads.push_back(head / (mamba.heads / mamba.groups));
  }
  KVANT_ASSIGN(shape.skips, builder.plan().Vectors(builder.Name("ssm_d"), 1, mamba.heads));
  return shape;
}

Result<graph::GatedNorm> NormOf(const Mamba2& mamba, SublayerBuilder& builder) {
  graph::GatedNorm norm = {
      .pieces = mamba.groups, .gate = 0, .order = graph::GateOrder::kBeforeNorm};
  norm.norm.epsilon = mamba.norm_epsilon;
  const std::string name = builder.Name("ssm_norm.weight");
  if (builder.plan().Find(name) == nullptr) return norm;
  KVANT_ASSIGN(norm.norm.weight,
               builder.plan().Vectors(name, mamba.inner() / mamba.groups, mamba.groups));
  return norm;
}

}  // namespace

Status Mamba2::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  const int64_t in_columns = inner() + conv_columns() + heads;
  const StackedMatrix in_matrix[] = {{"ssm_in", in_columns}};
  const StackedMatrix out_matrix[] = {{"ssm_out", builder.dim()}};
  KVANT_ASSIGN(std::vector<MatMulOperand> in_operands, builder.Separate(builder.dim(), in_matrix));
  KVANT_ASSIGN(std::vector<MatMulOperand> out_operands, builder.Separate(inner(), out_matrix));
  KVANT_ASSIGN(graph::CausalConv conv,
               ReadConvWeights(plan, builder.Name("ssm_conv1d"), taps, conv_columns()));
  conv.first = inner();
  conv.activation = cpu::Activation::kSilu;
  graph::StepGates gates = {.first = inner() + conv_columns()};
  KVANT_ASSIGN(gates.rates, plan.Vectors(builder.Name("ssm_a"), 1, heads));
  KVANT_ASSIGN(gates.biases, plan.Vector(builder.Name("ssm_dt.bias"), heads));
  KVANT_ASSIGN(const graph::ScanShape shape, ShapeOf(*this, builder));
  KVANT_ASSIGN(graph::GatedNorm norm, NormOf(*this, builder));

  const int64_t conv_floats = conv.state_floats();
  const int cache_id = plan.plan().AddCacheLayer(
      {.state_floats = conv_floats + shape.state_floats(), .scan_floats = shape.state_floats()});
  KVANT_ASSIGN(const Activations normed, builder.AddInput("ssm_normed", in_operands));
  const ValueId in = plan.NewFloats(builder.Name("ssm_in"), RowSpace::kPass, in_columns);
  plan.AddMatMul(RowSpace::kPass, builder.Name("ssm_in"), std::move(in_operands), normed, in,
                 cpu::Store::kSet);
  const ValueId xbc = plan.NewFloats(builder.Name("ssm_conv1d"), RowSpace::kPass, conv_columns());
  plan.Add(RowSpace::kPass,
           graph::MakeCausalConv(plan.kernels(), builder.Name("ssm_conv1d"), std::move(conv),
                                 {cache_id, 0}, in, {.floats = xbc, .cols = conv_columns()}));
  const ValueId scalars = plan.NewFloats(builder.Name("ssm_gates"), RowSpace::kPass, 2 * heads);
  plan.Add(RowSpace::kPass,
           graph::MakeStepGates(builder.Name("ssm_gates"), std::move(gates), in, scalars));
  const ValueId scanned = plan.NewFloats(builder.Name("ssm_scan"), RowSpace::kPass, inner());
  plan.Add(RowSpace::kPass,
           graph::MakeScan(plan.kernels(), builder.Name("ssm_scan"), shape, {cache_id, conv_floats},
                           {.in = xbc, .gates = scalars, .out = scanned}));
  const Activations result =
      plan.NewActivations(builder.Name("ssm_gated"), RowSpace::kPass, inner(), out_operands);
  plan.Add(RowSpace::kPass, graph::MakeGatedNorm(plan.kernels(), builder.Name("ssm_norm"),
                                                 std::move(norm), scanned, in, result));
  return builder.AddToStream("ssm_out", std::move(out_operands), result);
}

Result<Mamba2> ReadMamba2(const Metadata& metadata, float norm_epsilon) {
  Mamba2 mamba;
  mamba.norm_epsilon = norm_epsilon;
  KVANT_ASSIGN(mamba.taps, ReadConvTaps(metadata, "ssm.conv_kernel"));
  KVANT_ASSIGN(mamba.heads, metadata.Count("ssm.time_step_rank", kHeadsMax));
  KVANT_ASSIGN(mamba.state_dim, metadata.Count("ssm.state_size", kHeadDimMax));
  KVANT_ASSIGN(mamba.groups, metadata.Count("ssm.group_count", kHeadsMax));
  KVANT_ASSIGN(const int64_t inner, metadata.Count("ssm.inner_size", kDimMax));
  const auto wrong = [&](std::string_view key, std::string_view expected, int64_t found) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {}, found {}",
                     metadata.file().path(), metadata.Key(key), expected, found);
  };
  if (mamba.heads % mamba.groups != 0) {
    return wrong("ssm.group_count", fmt::format("a divisor of {} heads", mamba.heads),
                 mamba.groups);
  }
  if (inner % mamba.heads != 0 || inner / mamba.heads > int64_t{kHeadDimMax}) {
    return wrong("ssm.inner_size", fmt::format("a multiple of {} heads", mamba.heads), inner);
  }
  mamba.head_dim = inner / mamba.heads;
  return mamba;
}

}  // namespace kvant::arch
