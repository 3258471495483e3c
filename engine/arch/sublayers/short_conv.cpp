#include "engine/arch/sublayers/short_conv.h"

#include "base/result.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/arch/sublayers/conv_weights.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/recurrent/recurrent_nodes.h"

namespace kvant::arch {

Status ShortConv::AddNodes(SublayerBuilder& builder) const {
  using graph::Activations;
  using graph::MatMulOperand;
  using graph::RowSpace;
  graph::PlanBuilder& plan = builder.plan();
  const int64_t dim = builder.dim();
  const StackedMatrix in_matrix[] = {{"shortconv.in_proj", 3 * dim}};
  const StackedMatrix out_matrix[] = {{"shortconv.out_proj", dim}};
  KVANT_ASSIGN(std::vector<MatMulOperand> in_operands, builder.Separate(dim, in_matrix));
  KVANT_ASSIGN(std::vector<MatMulOperand> out_operands, builder.Separate(dim, out_matrix));
  KVANT_ASSIGN(graph::CausalConv conv,
               ReadConvWeights(builder.plan(), builder.Name("shortconv.conv"), taps, dim));
  conv.first = 2 * dim;
  conv.gate = dim;
  if (reach == Reach::kBothSides) conv.ahead = taps - 1 - (taps - 1) / 2;

  KVANT_ASSIGN(const Activations normed, builder.AddInput("shortconv.normed", in_operands));
  const std::string in_name = builder.Name("shortconv.in_proj");
  const graph::ValueId bcx = plan.NewFloats(in_name, RowSpace::kPass, 3 * dim);
  plan.AddMatMul(RowSpace::kPass, in_name, std::move(in_operands), normed, bcx, cpu::Store::kSet);
  plan.Add(RowSpace::kPass,
           graph::MakeMultiplyColumns(builder.Name("shortconv.gate"), bcx, 2 * dim, 0, dim));
  const std::string conv_name = builder.Name("shortconv.conv");
  const Activations result = plan.NewActivations(conv_name, RowSpace::kPass, dim, out_operands);
  const int cache_id = plan.plan().AddCacheLayer({.state_floats = conv.state_floats()});
  plan.Add(RowSpace::kPass, graph::MakeCausalConv(plan.kernels(), conv_name, std::move(conv),
                                                  {.cache_id = cache_id}, bcx, result));
  return builder.AddToStream("shortconv.out_proj", std::move(out_operands), result);
}

Result<ShortConv> ReadShortConv(const Metadata& metadata) {
  ShortConv conv;
  KVANT_ASSIGN(conv.taps, ReadConvTaps(metadata, "shortconv.l_cache"));
  return conv;
}

}  // namespace kvant::arch
