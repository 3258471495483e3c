#include "engine/arch/sublayers/rwkv7_mix.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "base/result.h"
#include "engine/arch/sublayers/rwkv_parts.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/recurrent/rwkv_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {
namespace {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

// The value of the first layer, which the others read.
constexpr std::string_view kFirstValues = "time_mix_first_values";

// The order of the mixes.
enum MixOf : size_t { kQueryMix, kDecayMix, kKeyMix, kValueMix, kRateMix, kGateMix, kMixCount };

// The operands of all matrices, found before what they read is made.
struct Matrices7 {
  std::array<std::vector<MatMulOperand>, 3> rkv;
  LowRankOperands decay, rates, values, gates;
  std::vector<MatMulOperand> out;
};

struct LowRanks7 {
  explicit LowRanks7(const Rwkv7Mix& mix)
      : decay{"time_mix_w1", "time_mix_w2", "time_mix_w0", mix.decay_rank, cpu::Activation::kTanh},
        rates{"time_mix_a1", "time_mix_a2", "time_mix_a0", mix.rate_rank},
        values{"time_mix_v1", "time_mix_v2", "time_mix_v0", mix.value_rank},
        gates{"time_mix_g1", "time_mix_g2", "", mix.gate_rank, cpu::Activation::kSigmoid} {}
  LowRank decay, rates, values, gates;
};

constexpr std::string_view kRkvNames[] = {"time_mix_receptance", "time_mix_key", "time_mix_value"};

Result<Matrices7> FindMatrices(const Rwkv7Mix& mix, const LowRanks7& low,
                               SublayerBuilder& builder) {
  const int64_t dim = builder.dim();
  Matrices7 found;
  for (size_t i = 0; i < found.rkv.size(); ++i) {
    const StackedMatrix matrix[] = {{kRkvNames[i], dim}};
    KVANT_ASSIGN(found.rkv[i], builder.Separate(dim, matrix));
    found.rkv[i].front().out_col = static_cast<int64_t>(i) * dim;
  }
  KVANT_ASSIGN(found.decay, FindLowRank(builder, low.decay));
  KVANT_ASSIGN(found.rates, FindLowRank(builder, low.rates));
  if (!mix.first) {
    KVANT_ASSIGN(found.values, FindLowRank(builder, low.values));
  }
  KVANT_ASSIGN(found.gates, FindLowRank(builder, low.gates));
  const StackedMatrix out_matrix[] = {{"time_mix_output", dim}};
  KVANT_ASSIGN(found.out, builder.Separate(dim, out_matrix));
  return found;
}

std::vector<MatMulOperand> Joined(std::vector<MatMulOperand> a,
                                  const std::vector<MatMulOperand>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The tensors of the first layer's mix of values, which other engines want and nothing reads, where
// the file has them.
Status CheckUnusedMix(const Rwkv7Mix& mix, const SublayerBuilder& builder,
                      const graph::PlanBuilder& plan) {
  const std::tuple<const char*, int64_t, int64_t> tensors[] = {
      {"time_mix_v0.weight", builder.dim(), 1},
      {"time_mix_v1.weight", builder.dim(), mix.rate_rank},
      {"time_mix_v2.weight", mix.rate_rank, builder.dim()}};
  for (const auto& [name, cols, rows] : tensors) {
    const std::string full = builder.Name(name);
    if (plan.Find(full) == nullptr) continue;
    const auto checked = plan.Matrix(full, cols, rows);
    if (!checked.ok()) return checked.error();
  }
  return {};
}

// The mixes of the input, in the forms that their readers need.
Result<std::array<Activations, kMixCount>> AddMixes7(const Matrices7& matrices,
                                                     graph::StateSlice state,
                                                     SublayerBuilder& builder) {
  graph::PlanBuilder& plan = builder.plan();
  const std::string name = builder.Name("time_mix_lerp_fused");
  KVANT_ASSIGN(auto factors, ReadMixFactors(plan, name + ".weight", builder.dim(), kMixCount));
  const std::array<std::vector<MatMulOperand>, kMixCount> readers = {
      matrices.rkv[0],      matrices.decay.first,
      matrices.rkv[1],      Joined(matrices.rkv[2], matrices.values.first),
      matrices.rates.first, matrices.gates.first};
  KVANT_ASSIGN(const ValueId normed, builder.AddFloatInput("time_mix_normed"));
  graph::TokenMix mix = {.cols = builder.dim(), .state = state};
  std::array<Activations, kMixCount> mixed;
  for (size_t i = 0; i < kMixCount; ++i) {
    mixed[i] = plan.NewActivations(fmt::format("{}.{}", name, i), RowSpace::kPass, builder.dim(),
                                   readers[i]);
    mix.targets.push_back({.factors = std::move(factors[i]), .out = mixed[i]});
  }
  plan.Add(RowSpace::kPass, graph::MakeTokenMix(plan.kernels(), name, std::move(mix), normed));
  return mixed;
}

// The value of that name, which an earlier layer has made.
ValueId FindValue(const graph::Plan& plan, std::string_view name) {
  const auto values = plan.values();
  const auto found = std::ranges::find(values, name, &graph::Value::name);
  return found == values.end() ? graph::kNoValue : static_cast<ValueId>(found - values.begin());
}

}  // namespace

Status Rwkv7Mix::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  const int64_t dim = builder.dim();
  const LowRanks7 low(*this);
  KVANT_ASSIGN(Matrices7 matrices, FindMatrices(*this, low, builder));
  if (first) KVANT_TRY(CheckUnusedMix(*this, builder, plan));
  graph::Wkv7Inputs inputs = {.heads = heads, .head_dim = head_dim};
  KVANT_ASSIGN(inputs.erased, plan.Vector(builder.Name("time_mix_k_k.weight"), dim));
  KVANT_ASSIGN(inputs.kept, plan.Vector(builder.Name("time_mix_k_a.weight"), dim));
  graph::Wkv7Result result = {.heads = heads, .head_dim = head_dim};
  KVANT_ASSIGN(result.weights, plan.Vector(builder.Name("time_mix_r_k.weight"), dim));
  KVANT_ASSIGN(graph::Norm norm, ReadWkvNorm(builder));
  graph::ScanShape shape = {.rule = cpu::ScanRule::kWkv7,
                            .heads = heads,
                            .depth = head_dim,
                            .cols = head_dim,
                            .queries = 0,
                            .keys = dim,
                            .values = 2 * dim};
  for (int64_t head = 0; head < heads; ++head) shape.key_heads.push_back(head);
  const int cache_id = plan.plan().AddCacheLayer(
      {.state_floats = dim + shape.state_floats(), .scan_floats = shape.state_floats()});

  KVANT_ASSIGN(const auto mixed, AddMixes7(matrices, {cache_id, 0}, builder));
  const ValueId rkv = plan.NewFloats(builder.Name("time_mix_rkv"), RowSpace::kPass, 3 * dim);
  const size_t rkv_mixes[] = {kQueryMix, kKeyMix, kValueMix};
  for (size_t i = 0; i < matrices.rkv.size(); ++i) {
    plan.AddMatMul(RowSpace::kPass, builder.Name(kRkvNames[i]), std::move(matrices.rkv[i]),
                   mixed[rkv_mixes[i]], rkv, cpu::Store::kSet);
  }
  const ValueId decays =
      AddLowRank(builder, low.decay, std::move(matrices.decay), mixed[kDecayMix]);
  AddActivation(builder, "time_mix_decay", cpu::Activation::kBoundedDecay, decays, dim);
  inputs.rkv = rkv;
  inputs.rates = AddLowRank(builder, low.rates, std::move(matrices.rates), mixed[kRateMix]);
  AddActivation(builder, "time_mix_rates", cpu::Activation::kSigmoid, inputs.rates, dim);
  if (first) {
    inputs.first_values = plan.NewFloats(std::string(kFirstValues), RowSpace::kPass, dim);
  } else {
    inputs.first_values = FindValue(plan.plan(), kFirstValues);
    inputs.mixes = AddLowRank(builder, low.values, std::move(matrices.values), mixed[kValueMix]);
    AddActivation(builder, "time_mix_values", cpu::Activation::kSigmoid, inputs.mixes, dim);
  }
  result.gates = AddLowRank(builder, low.gates, std::move(matrices.gates), mixed[kGateMix]);
  inputs.erasers = plan.NewFloats(builder.Name("time_mix_erasers"), RowSpace::kPass, 2 * dim);
  const ValueId erasers = inputs.erasers;
  plan.Add(RowSpace::kPass, graph::MakeWkv7Inputs(plan.kernels(), builder.Name("time_mix_inputs"),
                                                  std::move(inputs)));
  const ValueId scanned = plan.NewFloats(builder.Name("time_mix_scan"), RowSpace::kPass, dim);
  plan.Add(RowSpace::kPass,
           graph::MakeScan(plan.kernels(), builder.Name("time_mix_scan"), std::move(shape),
                           {cache_id, dim},
                           {.in = rkv, .gates = decays, .out = scanned, .erasers = erasers}));
  plan.Add(RowSpace::kPass, graph::MakeNormPieces(plan.kernels(), builder.Name("time_mix_ln"),
                                                  std::move(norm), 0, heads, scanned));
  result.rkv = rkv;
  result.in = scanned;
  const Activations gated =
      plan.NewActivations(builder.Name("time_mix_gated"), RowSpace::kPass, dim, matrices.out);
  plan.Add(RowSpace::kPass, graph::MakeWkv7Result(plan.kernels(), builder.Name("time_mix_gated"),
                                                  std::move(result), gated));
  return builder.AddToStream("time_mix_output", std::move(matrices.out), gated);
}

Result<Rwkv7Mix> ReadRwkv7Mix(const Metadata& metadata, int64_t dim) {
  KVANT_TRY(CheckTokenShifts(metadata));
  KVANT_ASSIGN(const WkvHeads heads, ReadWkvHeads(metadata, dim));
  Rwkv7Mix mix = {.heads = heads.heads, .head_dim = heads.head_dim};
  KVANT_ASSIGN(mix.decay_rank, metadata.Count("attention.decay_lora_rank", kDimMax));
  KVANT_ASSIGN(mix.rate_rank, metadata.Count("attention.iclr_lora_rank", kDimMax));
  KVANT_ASSIGN(mix.value_rank, metadata.Count("attention.value_residual_mix_lora_rank", kDimMax));
  KVANT_ASSIGN(mix.gate_rank, metadata.Count("attention.gate_lora_rank", kDimMax));
  return mix;
}

}  // namespace kvant::arch
