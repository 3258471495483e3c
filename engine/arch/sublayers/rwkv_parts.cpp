#include "engine/arch/sublayers/rwkv_parts.h"

#include <fmt/format.h>

#include "base/result.h"
#include "engine/arch/norm.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {

using graph::Activations;
using graph::RowSpace;
using graph::ValueId;

Result<WkvHeads> ReadWkvHeads(const Metadata& metadata, int64_t dim) {
  WkvHeads heads;
  KVANT_ASSIGN(heads.head_dim, metadata.Count("wkv.head_size", kHeadDimMax));
  heads.heads = dim / heads.head_dim;
  if (heads.heads * heads.head_dim != dim || heads.heads > int64_t{kHeadsMax}) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected a divisor of {}, found {}",
                     metadata.file().path(), metadata.Key("wkv.head_size"), dim, heads.head_dim);
  }
  return heads;
}

Status CheckTokenShifts(const Metadata& metadata) {
  KVANT_ASSIGN(const int64_t shifts, metadata.CountOr("token_shift_count", kLayersMax, 2));
  if (shifts == 2) return {};
  return MakeError(ErrorCode::kNotSupported, "{}: key {}: expected 2, found {}",
                   metadata.file().path(), metadata.Key("token_shift_count"), shifts);
}

Result<std::vector<graph::WeightVector>> ReadMixFactors(const graph::PlanBuilder& plan,
                                                        const std::string& name, int64_t size,
                                                        int64_t count) {
  const formats::GgufTensor* tensor = plan.Find(name);
  if (tensor != nullptr && tensor->dims[3] == count && tensor->dims[0] == size &&
      tensor->dims[1] == 1 && tensor->dims[2] == 1) {
    graph::WeightVector values(static_cast<size_t>(size * count));
    quant::DecodeRows(*tensor->format, tensor->data, count, size, values.data());
    std::vector<graph::WeightVector> vectors;
    for (int64_t i = 0; i < count; ++i) {
      vectors.emplace_back(values.begin() + i * size, values.begin() + (i + 1) * size);
    }
    return vectors;
  }
  KVANT_ASSIGN(const graph::WeightVector values, plan.Vectors(name, size, count));
  std::vector<graph::WeightVector> vectors;
  for (int64_t i = 0; i < count; ++i) {
    vectors.emplace_back(values.begin() + i * size, values.begin() + (i + 1) * size);
  }
  return vectors;
}

Result<LowRankOperands> FindLowRank(SublayerBuilder& builder, const LowRank& low) {
  const StackedMatrix first[] = {{low.first, low.rank}};
  const StackedMatrix second[] = {{low.second, builder.dim()}};
  LowRankOperands operands;
  KVANT_ASSIGN(operands.first, builder.Separate(builder.dim(), first));
  KVANT_ASSIGN(operands.second, builder.Separate(low.rank, second));
  if (!low.bias.empty()) {
    const std::string name = builder.Name(low.bias) + ".weight";
    KVANT_ASSIGN(operands.second.front().bias, builder.plan().Vector(name, builder.dim()));
  }
  return operands;
}

ValueId AddLowRank(SublayerBuilder& builder, const LowRank& low, LowRankOperands operands,
                   const Activations& in) {
  graph::PlanBuilder& plan = builder.plan();
  const std::string first = builder.Name(low.first);
  const std::string second = builder.Name(low.second);
  const ValueId product = plan.NewFloats(first, RowSpace::kPass, low.rank);
  Activations middle =
      plan.NewActivations(second + ".in", RowSpace::kPass, low.rank, operands.second);
  plan.AddMatMul(RowSpace::kPass, first, std::move(operands.first), in, product, cpu::Store::kSet);
  if (low.activation.has_value()) {
    plan.Add(RowSpace::kPass,
             graph::MakeActivate(plan.kernels(), first, *low.activation, product, middle));
  } else {
    plan.Add(RowSpace::kPass, graph::MakeNorm(plan.kernels(), first,
                                              {.kind = graph::NormKind::kNone}, product, middle));
  }
  const ValueId out = plan.NewFloats(second, RowSpace::kPass, builder.dim());
  plan.AddMatMul(RowSpace::kPass, second, std::move(operands.second), middle, out,
                 cpu::Store::kSet);
  return out;
}

void AddActivation(SublayerBuilder& builder, std::string_view name, cpu::Activation activation,
                   ValueId value, int64_t cols) {
  builder.plan().Add(RowSpace::kPass,
                     graph::MakeActivate(builder.plan().kernels(), builder.Name(name), activation,
                                         value, {.floats = value, .cols = cols}));
}

Result<graph::Norm> ReadWkvNorm(SublayerBuilder& builder) {
  return ReadNorm(builder.plan(), {NormKind::kLayer, "time_mix_ln", kWkvNormEpsilon},
                  builder.Name(""), builder.dim());
}

}  // namespace kvant::arch
