#include "engine/arch/sublayers/streams.h"

#include "base/result.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {
namespace {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

// The router's values of a row, [streams], by the first `dim` columns of `in`.
Result<ValueId> AddStreamRouter(const Norm& router_norm, std::string_view name, ValueId in,
                                SublayerBuilder& builder) {
  graph::PlanBuilder& plan = builder.plan();
  const StackedMatrix matrix[] = {{"altup_router", builder.shared().stream_shape.count}};
  KVANT_ASSIGN(std::vector<MatMulOperand> router, builder.Separate(builder.dim(), matrix));
  KVANT_ASSIGN(graph::Norm norm, ReadNorm(plan, router_norm, builder.Name(""), builder.dim()));
  for (float& weight : norm.weight) weight /= static_cast<float>(builder.dim());
  const std::string normed_name = builder.Name(name) + ".normed";
  const Activations normed =
      plan.NewActivations(normed_name, RowSpace::kPass, builder.dim(), router);
  plan.Add(RowSpace::kPass,
           graph::MakeNorm(plan.kernels(), normed_name, std::move(norm), in, normed));
  const ValueId numbers = plan.NewFloats(builder.Name(name) + ".router", RowSpace::kPass,
                                         builder.shared().stream_shape.count);
  plan.AddMatMul(RowSpace::kPass, builder.Name(name) + ".router", std::move(router), normed,
                 numbers, cpu::Store::kSet);
  return numbers;
}

}  // namespace

Result<ValueId> Streams::AddBegin(ValueId x, graph::PlanBuilder& plan) const {
  KVANT_ASSIGN(const formats::GgufTensor* matrices,
               plan.Matrix("altup_proj.weight", shape.dim, shape.dim, shape.count - 1));
  std::vector<MatMulOperand> operands = {{matrices, {}, 0}};
  const Activations in = plan.NewActivations("streams.x", RowSpace::kPass, shape.dim, operands);
  plan.Add(RowSpace::kPass,
           graph::MakeNorm(plan.kernels(), "streams.x", {.kind = NormKind::kNone}, x, in));
  const ValueId products = plan.NewFloats("altup_proj", RowSpace::kPass, shape.other_columns());
  plan.AddMatMul(RowSpace::kPass, "altup_proj", std::move(operands), in, products,
                 cpu::Store::kSet);
  const ValueId streams = plan.NewFloats("streams", RowSpace::kPass, shape.columns());
  plan.Add(RowSpace::kPass, graph::MakeBeginStreams(shape, x, products, streams));
  return streams;
}

Status Streams::AddEnd(ValueId streams, ValueId selected, graph::PlanBuilder& plan) const {
  KVANT_ASSIGN(const formats::GgufTensor* matrices,
               plan.Matrix("altup_unembd_proj.weight", shape.dim, shape.dim, shape.count - 1));
  const ValueId first = plan.NewFloats("stream.0", RowSpace::kHead, shape.dim);
  plan.Add(RowSpace::kHead, graph::MakeSelectRows(streams, first, shape.dim));
  const ValueId products =
      plan.NewFloats("altup_unembd_proj", RowSpace::kHead, shape.other_columns());
  for (int64_t i = 1; i < shape.count; ++i) {
    const std::string name = fmt::format("stream.{}", i);
    const ValueId rows = plan.NewFloats(name, RowSpace::kHead, shape.dim);
    plan.Add(RowSpace::kHead, graph::MakeSelectRows(streams, rows, shape.dim, i * shape.dim));
    std::vector<MatMulOperand> operands = {
        {plan.plan().AddPart(*matrices, i - 1), {}, (i - 1) * shape.dim}};
    const Activations in = plan.NewActivations(name + ".x", RowSpace::kHead, shape.dim, operands);
    plan.Add(RowSpace::kHead,
             graph::MakeNorm(plan.kernels(), name + ".x", {.kind = NormKind::kNone}, rows, in));
    plan.AddMatMul(RowSpace::kHead, fmt::format("altup_unembd_proj.{}", i), std::move(operands), in,
                   products, cpu::Store::kSet);
  }
  plan.Add(RowSpace::kHead, graph::MakeEndStreams(shape, first, products, selected));
  return {};
}

Status PredictStreams::AddNodes(SublayerBuilder& builder) const {
  const StackValues& shared = builder.shared();
  const int64_t count = shared.stream_shape.count;
  KVANT_ASSIGN(const ValueId router,
               AddStreamRouter(router_norm, "predict", shared.streams, builder));
  KVANT_ASSIGN(auto coefs, builder.plan().Vectors(builder.Name("altup_predict_coef.weight"), count,
                                                  count * count));
  builder.plan().Add(
      RowSpace::kPass,
      graph::MakePredictStreams(builder.Name("predict"), shared.stream_shape, std::move(coefs),
                                router, shared.streams, builder.source()));
  return {};
}

Status CorrectStreams::AddNodes(SublayerBuilder& builder) const {
  const StackValues& shared = builder.shared();
  const int64_t count = shared.stream_shape.count;
  KVANT_ASSIGN(const ValueId router,
               AddStreamRouter(router_norm, "correct", builder.source(), builder));
  KVANT_ASSIGN(auto coefs,
               builder.plan().Vectors(builder.Name("altup_correct_coef.weight"), count, count));
  KVANT_ASSIGN(auto scale, builder.plan().OptionalVector(builder.Name("altup_correct_scale.weight"),
                                                         builder.dim()));
  builder.plan().Add(
      RowSpace::kPass,
      graph::MakeCorrectStreams(builder.Name("correct"), shared.stream_shape, std::move(coefs),
                                std::move(scale), router, builder.source(), shared.streams));
  return {};
}

Result<Streams> ReadStreams(const Metadata& metadata, int64_t dim) {
  constexpr const char* kActive = "altup.active_idx";
  Streams streams;
  KVANT_ASSIGN(streams.shape.count, metadata.Count("altup.num_inputs", graph::kStreamsMax));
  streams.shape.dim = dim;
  if (streams.shape.count < 2) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected at least 2, found 1",
                     metadata.file().path(), metadata.Key("altup.num_inputs"));
  }
  KVANT_ASSIGN(const auto active, metadata.file().GetU32(metadata.Key(kActive)));
  if (active.value_or(0) != 0) {
    return MakeError(ErrorCode::kNotSupported, "{}: key {}: expected 0, found {}",
                     metadata.file().path(), metadata.Key(kActive), active.value_or(0));
  }
  return streams;
}

}  // namespace kvant::arch
