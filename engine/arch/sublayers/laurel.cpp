#include "engine/arch/sublayers/laurel.h"

#include <numbers>

#include "base/result.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

Status Laurel::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  const int64_t dim = builder.dim();
  const ValueId stream = builder.source();
  const StackedMatrix left_matrix[] = {{"laurel_l", rank}};
  const StackedMatrix right_matrix[] = {{"laurel_r", dim}};
  KVANT_ASSIGN(std::vector<MatMulOperand> left, builder.Separate(dim, left_matrix));
  KVANT_ASSIGN(std::vector<MatMulOperand> right, builder.Separate(rank, right_matrix));

  Activations in = plan.NewActivations(builder.Name("laurel.x"), RowSpace::kPass, dim, left);
  if (in.floats == graph::kNoValue) {
    in.floats = plan.NewFloats(builder.Name("laurel.x"), RowSpace::kPass, dim);
  }
  KVANT_ASSIGN(auto norm_before, ReadNorm(plan, before, builder.Name(""), dim));
  plan.Add(RowSpace::kPass, graph::MakeNorm(plan.kernels(), builder.Name("laurel.x"),
                                            std::move(norm_before), builder.shared().streams, in));
  Activations inner = plan.NewActivations(builder.Name("laurel_l"), RowSpace::kPass, rank, right);
  if (inner.floats == graph::kNoValue) {
    inner.floats = plan.NewFloats(builder.Name("laurel_l"), RowSpace::kPass, rank);
  }
  plan.AddMatMul(RowSpace::kPass, builder.Name("laurel_l"), std::move(left), in, inner.floats,
                 cpu::Store::kSet);
  if (inner.int8 != graph::kNoValue) {
    plan.Add(RowSpace::kPass,
             graph::MakeQuantize(plan.kernels(), builder.Name("laurel_l.int8"), inner));
  }
  const ValueId product = plan.NewFloats(builder.Name("laurel_r"), RowSpace::kPass, dim);
  plan.AddMatMul(RowSpace::kPass, builder.Name("laurel_r"), std::move(right), inner, product,
                 cpu::Store::kSet);
  KVANT_ASSIGN(auto norm_after, ReadNorm(plan, after, builder.Name(""), dim));
  plan.Add(RowSpace::kPass, graph::MakeAddNorm(plan.kernels(), builder.Name(after.tensor),
                                               std::move(norm_after), dim, 1.0f, product, stream));
  plan.Add(RowSpace::kPass,
           graph::MakeAddNorm(plan.kernels(), builder.Name("laurel.add"), {.kind = NormKind::kNone},
                              dim, 1.0f, in.floats, stream));
  plan.Add(RowSpace::kPass, graph::MakeScale(builder.Name("laurel.scale"),
                                             std::numbers::sqrt2_v<float> / 2, stream, dim));
  return {};
}

}  // namespace kvant::arch
