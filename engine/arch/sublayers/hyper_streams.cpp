#include "engine/arch/sublayers/hyper_streams.h"

#include <vector>

#include "base/result.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/rowwise/hyper_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"
#include "engine/limits.h"

namespace kvant::arch {
namespace {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

enum class Shares : uint8_t { kNone, kOfStreams };

// The matrices that read the normed streams: those of the gates' first step, and of shares.
Result<std::vector<MatMulOperand>> FirstStep(const HyperStreams& hyper, const std::string& name,
                                             Shares shares, const graph::PlanBuilder& plan) {
  const int64_t columns = hyper.shape.columns();
  std::vector<MatMulOperand> operands;
  KVANT_TRY(plan.AddOperand(operands, name + "_down", columns, hyper.rank));
  if (shares == Shares::kOfStreams) {
    KVANT_TRY(plan.AddOperand(operands, name + "_inject", columns, hyper.shape.count));
  }
  for (MatMulOperand& operand : operands) {
    operand.scale /= static_cast<float>(hyper.shape.count);
  }
  return operands;
}

// Adds the mean of `streams` as the value `x` of these rows; returns the value with shares.
Result<ValueId> AddGatedMean(const HyperStreams& hyper, const std::string& name, RowSpace rows,
                             Shares shares, ValueId streams, ValueId x, graph::PlanBuilder& plan) {
  const int64_t columns = hyper.shape.columns();
  KVANT_ASSIGN(std::vector<MatMulOperand> first, FirstStep(hyper, name, shares, plan));
  std::vector<MatMulOperand> second;
  KVANT_TRY(plan.AddOperand(second, name + "_up", hyper.rank, columns));
  graph::Norm norm = {.kind = graph::NormKind::kRms, .epsilon = hyper.epsilon};
  KVANT_ASSIGN(norm.weight, plan.Vector(name + "_norm.weight", columns));

  const std::string normed_name = name + ".normed";
  Activations normed = plan.NewActivations(normed_name, rows, columns, first);
  if (normed.floats == graph::kNoValue) {
    normed.floats = plan.NewFloats(normed_name, rows, columns);
  }
  plan.Add(rows, graph::MakeNormOfPieces(plan.kernels(), name + "_norm", std::move(norm),
                                         hyper.shape.count, streams, normed));
  const int64_t share_columns = shares == Shares::kNone ? 0 : hyper.shape.count;
  const ValueId low = plan.NewFloats(name + "_down", rows, hyper.rank + share_columns);
  plan.AddMatMul(rows, name + "_down", std::move(first), normed, low, cpu::Store::kSet);
  const Activations activated = plan.NewActivations(name + ".silu", rows, hyper.rank, second);
  plan.Add(rows, graph::MakeActivate(plan.kernels(), name + ".silu", cpu::Activation::kSilu, low,
                                     activated));
  const ValueId gates = plan.NewFloats(name + "_up", rows, columns);
  plan.AddMatMul(rows, name + "_up", std::move(second), activated, gates, cpu::Store::kSet);
  plan.Add(rows, graph::MakeMixStreams(plan.kernels(), name + ".mean", hyper.shape, gates,
                                       normed.floats, x));
  return low;
}

}  // namespace

ValueId HyperStreams::AddBegin(ValueId x, graph::PlanBuilder& plan) const {
  const ValueId streams = plan.NewFloats("streams", RowSpace::kPass, shape.columns());
  plan.Add(RowSpace::kPass, graph::MakeRepeatStreams(shape, x, streams));
  return streams;
}

Result<HyperMean> HyperStreams::AddMean(const std::string& name, ValueId streams, ValueId x,
                                        graph::PlanBuilder& plan) const {
  KVANT_ASSIGN(const ValueId shares,
               AddGatedMean(*this, name, RowSpace::kPass, Shares::kOfStreams, streams, x, plan));
  return HyperMean{x, shares, rank};
}

void HyperStreams::AddResult(const std::string& name, const HyperMean& mean, ValueId result,
                             ValueId streams, graph::PlanBuilder& plan) const {
  plan.Add(RowSpace::kPass, graph::MakeInjectIntoStreams(name + "_inject", shape, mean.shares,
                                                         mean.first_share, result, streams));
}

Status HyperStreams::AddEnd(ValueId streams, ValueId selected, graph::PlanBuilder& plan) const {
  const std::string name(last);
  const ValueId rows = plan.NewFloats(name + ".streams", RowSpace::kHead, shape.columns());
  plan.Add(RowSpace::kHead, graph::MakeSelectRows(streams, rows, shape.columns()));
  KVANT_TRY(AddGatedMean(*this, name, RowSpace::kHead, Shares::kNone, rows, selected, plan));
  return {};
}

Result<HyperStreams> ReadHyperStreams(const Metadata& metadata, int64_t dim, float epsilon) {
  constexpr const char* kCount = "hyper_connection.count";
  HyperStreams hyper;
  hyper.epsilon = epsilon;
  hyper.shape.dim = dim;
  KVANT_ASSIGN(hyper.shape.count, metadata.Count(kCount, graph::kStreamsMax));
  KVANT_ASSIGN(hyper.rank, metadata.Count("hyper_connection.low_rank", kDimMax));
  if (hyper.shape.count > 1) return hyper;
  return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected at least 2, found 1",
                   metadata.file().path(), metadata.Key(kCount));
}

}  // namespace kvant::arch
