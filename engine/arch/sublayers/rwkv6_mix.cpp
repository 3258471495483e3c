#include "engine/arch/sublayers/rwkv6_mix.h"

#include <array>

#include "base/result.h"
#include "engine/arch/sublayers/rwkv_parts.h"
#include "engine/graph/activations.h"
#include "engine/graph/attention/latent_nodes.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/recurrent/rwkv_nodes.h"

namespace kvant::arch {
namespace {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

// The order of the mixes, and their names in files with a vector for each.
enum Mix6 : size_t { kDecay6, kKey6, kValue6, kQuery6, kGate6, kMixes6 };
constexpr std::string_view kMixNames[kMixes6] = {"w", "k", "v", "r", "g"};

constexpr std::string_view kRkv6Names[] = {"time_mix_receptance", "time_mix_key", "time_mix_value"};

// The operands of all matrices, found before what they read is made.
struct Matrices6 {
  std::array<std::vector<MatMulOperand>, 3> rkv;
  std::vector<MatMulOperand> gate;
  std::vector<MatMulOperand> out;
  std::vector<MatMulOperand> mixes;  // w1
  LowRankOperands decay;
};

LowRank DecayOf(const Rwkv6Mix& mix) {
  return {"time_mix_decay_w1", "time_mix_decay_w2", "time_mix_decay", mix.decay_rank,
          cpu::Activation::kTanh};
}

Result<Matrices6> FindMatrices6(const Rwkv6Mix& mix, SublayerBuilder& builder) {
  const int64_t dim = builder.dim();
  Matrices6 found;
  for (size_t i = 0; i < found.rkv.size(); ++i) {
    const StackedMatrix matrix[] = {{kRkv6Names[i], dim}};
    KVANT_ASSIGN(found.rkv[i], builder.Separate(dim, matrix));
    found.rkv[i].front().out_col = static_cast<int64_t>(i) * dim;
  }
  const StackedMatrix gate[] = {{"time_mix_gate", dim}};
  const StackedMatrix out[] = {{"time_mix_output", dim}};
  const StackedMatrix mixes[] = {{"time_mix_w1", static_cast<int64_t>(kMixes6) * mix.mix_rank}};
  KVANT_ASSIGN(found.gate, builder.Separate(dim, gate));
  KVANT_ASSIGN(found.out, builder.Separate(dim, out));
  KVANT_ASSIGN(found.mixes, builder.Separate(dim, mixes));
  KVANT_ASSIGN(found.decay, FindLowRank(builder, DecayOf(mix)));
  return found;
}

// The factors of all mixes.
Result<std::vector<graph::WeightVector>> ReadFactors6(SublayerBuilder& builder) {
  const std::string fused = builder.Name("time_mix_lerp_fused.weight");
  const std::string apart = builder.Name("time_mix_lerp_w.weight");
  if (builder.plan().Find(fused) != nullptr || builder.plan().Find(apart) == nullptr) {
    return ReadMixFactors(builder.plan(), fused, builder.dim(), kMixes6);
  }
  std::vector<graph::WeightVector> factors;
  for (const std::string_view mix : kMixNames) {
    const std::string name = builder.Name(fmt::format("time_mix_lerp_{}.weight", mix));
    KVANT_ASSIGN(factors.emplace_back(), builder.plan().Vector(name, builder.dim()));
  }
  return factors;
}

// The terms that each row adds to the factors of the mixes: a value of dim columns for each mix.
Result<ValueId> AddDeltas6(const Rwkv6Mix& mix, std::vector<MatMulOperand> operands,
                           graph::StateSlice state, ValueId normed, SublayerBuilder& builder) {
  graph::PlanBuilder& plan = builder.plan();
  const int64_t dim = builder.dim();
  const auto count = static_cast<int64_t>(kMixes6);
  const std::string second = builder.Name("time_mix_w2");
  KVANT_ASSIGN(const formats::GgufTensor* matrices,
               plan.Matrix(second + ".weight", mix.mix_rank, dim, count));
  if (matrices->format->quantized()) {
    return MakeError(ErrorCode::kNotSupported, "{}: tensor {}: expected floats, found {}",
                     plan.path(), matrices->name, matrices->format->name);
  }
  const std::string first = builder.Name("time_mix_w1");
  graph::TokenMix::Target target;
  KVANT_ASSIGN(target.factors, plan.Vector(builder.Name("time_mix_lerp_x.weight"), dim));
  target.out = plan.NewActivations(builder.Name("time_mix_lerp_x"), RowSpace::kPass, dim, operands);
  const Activations mixed = target.out;
  graph::TokenMix node = {.cols = dim, .state = state};
  node.targets.push_back(std::move(target));
  plan.Add(RowSpace::kPass, graph::MakeTokenMix(plan.kernels(), builder.Name("time_mix_lerp_x"),
                                                std::move(node), normed));
  const ValueId low = plan.NewFloats(first, RowSpace::kPass, count * mix.mix_rank);
  plan.AddMatMul(RowSpace::kPass, first, std::move(operands), mixed, low, cpu::Store::kSet);
  AddActivation(builder, "time_mix_w1.tanh", cpu::Activation::kTanh, low, count * mix.mix_rank);
  const ValueId deltas = plan.NewFloats(second, RowSpace::kPass, count * dim);
  const graph::HeadColumns in = {low, 0, mix.mix_rank};
  if (plan.has_observer()) plan.AddHeadObserver(*matrices, in, count);
  plan.Add(RowSpace::kPass, graph::MakeHeadMatMul(plan.kernels(), plan.float_gemm(), second,
                                                  {.heads = count, .always_absorbed = true},
                                                  {.tensor = matrices, .stride = dim, .rows = dim},
                                                  in, graph::kNoValue, {deltas, 0, dim}));
  return deltas;
}

// The mixes of the input, in the forms that their readers need.
Result<std::array<Activations, kMixes6>> AddMixes6(const Rwkv6Mix& mix, Matrices6& matrices,
                                                   graph::StateSlice state,
                                                   SublayerBuilder& builder) {
  graph::PlanBuilder& plan = builder.plan();
  const int64_t dim = builder.dim();
  KVANT_ASSIGN(auto factors, ReadFactors6(builder));
  KVANT_ASSIGN(const ValueId normed, builder.AddFloatInput("time_mix_normed"));
  graph::TokenMix node = {.cols = dim, .state = state, .keeps = graph::TokenMix::Keeps::kNothing};
  KVANT_ASSIGN(node.deltas, AddDeltas6(mix, std::move(matrices.mixes), state, normed, builder));
  const std::vector<MatMulOperand>* readers[kMixes6] = {};
  readers[kDecay6] = &matrices.decay.first;
  readers[kKey6] = &matrices.rkv[1];
  readers[kValue6] = &matrices.rkv[2];
  readers[kQuery6] = &matrices.rkv[0];
  readers[kGate6] = &matrices.gate;
  std::array<Activations, kMixes6> mixed;
  for (size_t i = 0; i < kMixes6; ++i) {
    const std::string name = builder.Name(fmt::format("time_mix_lerp_{}", kMixNames[i]));
    mixed[i] = plan.NewActivations(name, RowSpace::kPass, dim, *readers[i]);
    node.targets.push_back({.factors = std::move(factors[i]),
                            .out = mixed[i],
                            .delta_col = static_cast<int64_t>(i) * dim});
  }
  plan.Add(RowSpace::kPass, graph::MakeTokenMix(plan.kernels(), builder.Name("time_mix_lerp"),
                                                std::move(node), normed));
  return mixed;
}

}  // namespace

Status Rwkv6Mix::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  const int64_t dim = builder.dim();
  KVANT_ASSIGN(Matrices6 matrices, FindMatrices6(*this, builder));
  graph::ScanShape shape = {.rule = cpu::ScanRule::kWkv6,
                            .heads = heads,
                            .depth = head_dim,
                            .cols = head_dim,
                            .queries = 0,
                            .keys = dim,
                            .values = 2 * dim};
  for (int64_t head = 0; head < heads; ++head) shape.key_heads.push_back(head);
  KVANT_ASSIGN(shape.bonus, plan.Vectors(builder.Name("time_mix_first.weight"), head_dim, heads));
  graph::GatedNorm norm = {.pieces = heads, .order = graph::GateOrder::kAfterNorm};
  KVANT_ASSIGN(norm.norm, ReadWkvNorm(builder));
  const int cache_id = plan.plan().AddCacheLayer(
      {.state_floats = dim + shape.state_floats(), .scan_floats = shape.state_floats()});

  KVANT_ASSIGN(const auto mixed, AddMixes6(*this, matrices, {cache_id, 0}, builder));
  const ValueId rkv = plan.NewFloats(builder.Name("time_mix_rkv"), RowSpace::kPass, 3 * dim);
  const size_t rkv_mixes[] = {kQuery6, kKey6, kValue6};
  for (size_t i = 0; i < matrices.rkv.size(); ++i) {
    plan.AddMatMul(RowSpace::kPass, builder.Name(kRkv6Names[i]), std::move(matrices.rkv[i]),
                   mixed[rkv_mixes[i]], rkv, cpu::Store::kSet);
  }
  const std::string gate_name = builder.Name("time_mix_gate");
  const ValueId gates = plan.NewFloats(gate_name, RowSpace::kPass, dim);
  plan.AddMatMul(RowSpace::kPass, gate_name, std::move(matrices.gate), mixed[kGate6], gates,
                 cpu::Store::kSet);
  const ValueId decays =
      AddLowRank(builder, DecayOf(*this), std::move(matrices.decay), mixed[kDecay6]);
  AddActivation(builder, "time_mix_decay", cpu::Activation::kDecay, decays, dim);
  const ValueId scanned = plan.NewFloats(builder.Name("time_mix_scan"), RowSpace::kPass, dim);
  plan.Add(RowSpace::kPass,
           graph::MakeScan(plan.kernels(), builder.Name("time_mix_scan"), std::move(shape),
                           {cache_id, dim}, {.in = rkv, .gates = decays, .out = scanned}));
  const Activations gated =
      plan.NewActivations(builder.Name("time_mix_gated"), RowSpace::kPass, dim, matrices.out);
  plan.Add(RowSpace::kPass, graph::MakeGatedNorm(plan.kernels(), builder.Name("time_mix_ln"),
                                                 std::move(norm), scanned, gates, gated));
  return builder.AddToStream("time_mix_output", std::move(matrices.out), gated);
}

Result<Rwkv6Mix> ReadRwkv6Mix(const Metadata& metadata, int64_t dim) {
  KVANT_TRY(CheckTokenShifts(metadata));
  KVANT_ASSIGN(const WkvHeads heads, ReadWkvHeads(metadata, dim));
  Rwkv6Mix mix = {.heads = heads.heads, .head_dim = heads.head_dim};
  KVANT_ASSIGN(mix.mix_rank, metadata.Count("time_mix_extra_dim", kDimMax));
  KVANT_ASSIGN(mix.decay_rank, metadata.Count("time_decay_extra_dim", kDimMax));
  return mix;
}

}  // namespace kvant::arch
