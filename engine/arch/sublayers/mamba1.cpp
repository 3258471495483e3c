#include "engine/arch/sublayers/mamba1.h"

#include "base/result.h"
#include "engine/arch/norm.h"
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

// The norm of `size` of the parameters that ssm_x gives.
Result<graph::Norm> StepNormOf(const Mamba1& mamba, SublayerBuilder& builder,
                               std::string_view tensor, int64_t size) {
  graph::Norm norm = {.kind = NormKind::kNone};
  if (mamba.norms == StepNorms::kNone) return norm;
  norm = {.kind = NormKind::kRms, .epsilon = mamba.norm_epsilon};
  norm.weight.assign(static_cast<size_t>(size), 1.0f);
  if (mamba.norms == StepNorms::kWithWeights) {
    KVANT_ASSIGN(norm.weight, builder.plan().Vector(builder.Name(tensor) + ".weight", size));
  }
  return norm;
}

// The values that steps are made of, then b and c, both normed where the model has such norms.
Result<ValueId> AddScanParameters(const Mamba1& mamba, SublayerBuilder& builder,
                                  std::vector<MatMulOperand> operands, const Activations& x) {
  graph::PlanBuilder& plan = builder.plan();
  const ValueId parameters =
      plan.NewFloats(builder.Name("ssm_x"), RowSpace::kPass, mamba.parameters());
  plan.AddMatMul(RowSpace::kPass, builder.Name("ssm_x"), std::move(operands), x, parameters,
                 cpu::Store::kSet);
  if (mamba.norms == StepNorms::kNone) return parameters;
  int64_t first = mamba.rank;
  for (const char* tensor : {"ssm_b_norm", "ssm_c_norm"}) {
    KVANT_ASSIGN(auto norm, StepNormOf(mamba, builder, tensor, mamba.state_dim));
    plan.Add(RowSpace::kPass, graph::MakeNormPieces(plan.kernels(), builder.Name(tensor),
                                                    std::move(norm), first, 1, parameters));
    first += mamba.state_dim;
  }
  return parameters;
}

// A step for each column, by the first columns of the parameters.
Result<ValueId> AddSteps(const Mamba1& mamba, SublayerBuilder& builder,
                         std::vector<MatMulOperand> operands, ValueId parameters) {
  graph::PlanBuilder& plan = builder.plan();
  const std::string name = builder.Name("ssm_dt");
  const Activations in = plan.NewActivations(name + ".in", RowSpace::kPass, mamba.rank, operands);
  KVANT_ASSIGN(auto norm, StepNormOf(mamba, builder, "ssm_dt_norm", mamba.rank));
  plan.Add(RowSpace::kPass, graph::MakeNorm(plan.kernels(), builder.Name("ssm_dt_norm"),
                                            std::move(norm), parameters, in));
  const ValueId steps = plan.NewFloats(name, RowSpace::kPass, mamba.inner);
  plan.AddMatMul(RowSpace::kPass, name, std::move(operands), in, steps, cpu::Store::kSet);
  plan.Add(RowSpace::kPass, graph::MakeSoftplus(name + ".softplus", steps, mamba.inner));
  return steps;
}

Result<graph::SelectiveScan> ScanOf(const Mamba1& mamba, SublayerBuilder& builder) {
  graph::SelectiveScan scan = {.cols = mamba.inner,
                               .depth = mamba.state_dim,
                               .b = mamba.rank,
                               .c = mamba.rank + mamba.state_dim};
  KVANT_ASSIGN(scan.rates,
               builder.plan().Vectors(builder.Name("ssm_a"), mamba.state_dim, mamba.inner));
  KVANT_ASSIGN(scan.skips, builder.plan().Vector(builder.Name("ssm_d"), mamba.inner));
  return scan;
}

// The convolution's result in the form that ssm_x reads, and as floats for the scan.
Activations AddConvolution(const Mamba1& mamba, SublayerBuilder& builder, graph::CausalConv conv,
                           int cache_id, ValueId in, const std::vector<MatMulOperand>& readers) {
  graph::PlanBuilder& plan = builder.plan();
  const std::string name = builder.Name("ssm_conv1d");
  Activations x = plan.NewActivations(name, RowSpace::kPass, mamba.inner, readers);
  if (x.floats == graph::kNoValue) {
    x.floats = plan.NewFloats(name, RowSpace::kPass, mamba.inner);
  }
  plan.Add(RowSpace::kPass,
           graph::MakeCausalConv(plan.kernels(), name, std::move(conv), {cache_id, 0}, in, x));
  return x;
}

}  // namespace

Status Mamba1::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  const StackedMatrix in_matrix[] = {{"ssm_in", 2 * inner}};
  const StackedMatrix x_matrix[] = {{"ssm_x", parameters()}};
  const StackedMatrix step_matrix[] = {{"ssm_dt", inner}};
  const StackedMatrix out_matrix[] = {{"ssm_out", builder.dim()}};
  KVANT_ASSIGN(std::vector<MatMulOperand> in_operands, builder.Separate(builder.dim(), in_matrix));
  KVANT_ASSIGN(std::vector<MatMulOperand> x_operands, builder.Separate(inner, x_matrix));
  KVANT_ASSIGN(std::vector<MatMulOperand> step_operands, builder.Separate(rank, step_matrix));
  KVANT_ASSIGN(std::vector<MatMulOperand> out_operands, builder.Separate(inner, out_matrix));
  KVANT_ASSIGN(graph::CausalConv conv,
               ReadConvWeights(plan, builder.Name("ssm_conv1d"), taps, inner));
  conv.activation = cpu::Activation::kSilu;
  KVANT_ASSIGN(const graph::SelectiveScan scan, ScanOf(*this, builder));

  const int64_t conv_floats = conv.state_floats();
  const int cache_id = plan.plan().AddCacheLayer(
      {.state_floats = conv_floats + scan.state_floats(), .scan_floats = scan.state_floats()});
  KVANT_ASSIGN(const Activations normed, builder.AddInput("ssm_normed", in_operands));
  const ValueId in = plan.NewFloats(builder.Name("ssm_in"), RowSpace::kPass, 2 * inner);
  plan.AddMatMul(RowSpace::kPass, builder.Name("ssm_in"), std::move(in_operands), normed, in,
                 cpu::Store::kSet);
  const Activations x = AddConvolution(*this, builder, std::move(conv), cache_id, in, x_operands);
  KVANT_ASSIGN(const ValueId parameters,
               AddScanParameters(*this, builder, std::move(x_operands), x));
  KVANT_ASSIGN(const ValueId steps, AddSteps(*this, builder, std::move(step_operands), parameters));
  const ValueId scanned = plan.NewFloats(builder.Name("ssm_scan"), RowSpace::kPass, inner);
  plan.Add(RowSpace::kPass,
           graph::MakeSelectiveScan(
               plan.kernels(), builder.Name("ssm_scan"), scan, {cache_id, conv_floats},
               {.x = x.floats, .steps = steps, .parameters = parameters, .out = scanned}));
  const Activations result =
      plan.NewActivations(builder.Name("ssm_gated"), RowSpace::kPass, inner, out_operands);
  plan.Add(RowSpace::kPass,
           graph::MakeGatedNorm(plan.kernels(), builder.Name("ssm_gated"),
                                {.gate = inner, .order = graph::GateOrder::kBeforeNorm}, scanned,
                                in, result));
  return builder.AddToStream("ssm_out", std::move(out_operands), result);
}

Result<Mamba1> ReadMamba1(const Metadata& metadata, float norm_epsilon) {
  Mamba1 mamba;
  KVANT_ASSIGN(mamba.taps, ReadConvTaps(metadata, "ssm.conv_kernel"));
  KVANT_ASSIGN(mamba.inner, metadata.Count("ssm.inner_size", kDimMax));
  KVANT_ASSIGN(mamba.state_dim, metadata.Count("ssm.state_size", kHeadDimMax));
  KVANT_ASSIGN(mamba.rank, metadata.Count("ssm.time_step_rank", kDimMax));
  KVANT_ASSIGN(const auto normed, metadata.file().GetBool(metadata.Key("ssm.dt_b_c_rms")));
  if (normed.value_or(false)) mamba.norms = StepNorms::kWithoutWeights;
  KVANT_ASSIGN(mamba.norm_epsilon, metadata.PositiveOr("ssm.dt_b_c_rms_epsilon", norm_epsilon));
  return mamba;
}

}  // namespace kvant::arch
