#include "engine/arch/sublayers/experts.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"
#include "formats/gguf.h"

namespace kvant::arch {
namespace {

using graph::Activations;
using graph::ExpertOperand;
using graph::Gating;
using graph::MatMulOperand;
using graph::RoutedRows;
using graph::RowSpace;
using graph::ValueId;

// Gates by their numbers in expert_gating_func, which count from 1.
constexpr Gating kGatings[] = {Gating::kSoftmax, Gating::kSigmoid, Gating::kSoftmaxOfChosen,
                               Gating::kSqrtSoftplus};

Result<Gating> ReadGating(const Metadata& metadata, Gating otherwise) {
  KVANT_ASSIGN(const int64_t number,
               metadata.CountOr("expert_gating_func", std::size(kGatings), 0));
  return number == 0 ? otherwise : kGatings[number - 1];
}

Result<float> ReadScale(const Metadata& metadata) {
  constexpr const char* kKey = "expert_weights_scale";
  KVANT_ASSIGN(const auto scale, metadata.file().GetF32(metadata.Key(kKey)));
  if (!scale.has_value() || *scale == 0) return 1.0f;  // files say 0 for no scale
  if (std::isfinite(*scale) && *scale > 0) return *scale;
  return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected a positive number, found {}",
                   metadata.file().path(), metadata.Key(kKey), *scale);
}

// Groups must divide the experts, and the groups that a token uses must hold as many experts as it
// has.
Status ReadGroups(const Metadata& metadata, const ExpertTraits& traits, graph::Routing& routing) {
  const auto wrong = [&](std::string_view key, const std::string& expected, int64_t found) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected {}, found {}",
                     metadata.file().path(), metadata.Key(key), expected, found);
  };
  graph::ExpertGroups& groups = routing.groups;
  groups.score = traits.group_score;
  KVANT_ASSIGN(groups.count, metadata.CountOr("expert_group_count", kExpertsMax, 0));
  if (groups.count <= 1) {
    groups.count = 1;
    return {};
  }
  if (routing.experts % groups.count != 0) {
    return wrong("expert_group_count", fmt::format("a divisor of {} experts", routing.experts),
                 groups.count);
  }
  KVANT_ASSIGN(groups.used, metadata.Count("expert_group_used_count", kExpertsMax));
  if (groups.used > groups.count) {
    return wrong("expert_group_used_count", fmt::format("1 to {}", groups.count), groups.used);
  }
  if (groups.used * (routing.experts / groups.count) < routing.used) {
    return wrong("expert_group_used_count",
                 fmt::format("groups with at least {} experts together", routing.used),
                 groups.used);
  }
  return {};
}

Result<graph::Routing> ReadRouting(const Metadata& metadata, const ExpertTraits& traits,
                                   int64_t experts, int64_t used) {
  if (used > experts) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected 1 to {}, found {}",
                     metadata.file().path(), metadata.Key("expert_used_count"), experts, used);
  }
  graph::Routing routing;
  routing.experts = experts;
  routing.used = used;
  KVANT_ASSIGN(routing.gating, ReadGating(metadata, traits.gating));
  routing.jitter = traits.jitter;
  KVANT_TRY(ReadGroups(metadata, traits, routing));
  KVANT_ASSIGN(const auto normalize, metadata.file().GetBool(metadata.Key("expert_weights_norm")));
  routing.normalize = normalize.value_or(traits.normalize);
  routing.by_logits = traits.by_logits;
  routing.weighs = traits.weighs;
  KVANT_ASSIGN(routing.scale, ReadScale(metadata));
  return routing;
}

constexpr const char* kSharedWidth = "expert_shared_feed_forward_length";

// The width of the shared expert of a layer: the rows of its tensor; 0 if there is none. Without
// gates, which would tell a wrong number of rows, the key says it.
Result<int64_t> ReadSharedWidth(const Metadata& metadata, const ExpertTraits& traits,
                                const std::string& prefix) {
  if (traits.shared == SharedExpert::kNone) return 0;
  if (traits.kind == ExpertKind::kPlain && metadata.Has(kSharedWidth)) {
    return metadata.CountOr(kSharedWidth, kDimMax, 0);
  }
  const std::string name = prefix + "ffn_up_shexp.weight";
  const formats::GgufTensor* up = metadata.file().FindTensor(name);
  if (up != nullptr && metadata.file().FindTensor(prefix + "ffn_gate_shexp.weight") == nullptr) {
    // Gate and up may be one matrix.
    KVANT_ASSIGN(const int64_t width, metadata.CountOr(kSharedWidth, kDimMax, 0));
    if (up->dims[1] == 2 * width) return width;
  }
  if (up != nullptr && up->dims[1] <= int64_t{kDimMax}) return up->dims[1];
  if (up != nullptr) {
    return MakeError(ErrorCode::kCorrupt, "{}: tensor {}: expected at most {} rows, found {}",
                     metadata.file().path(), name, kDimMax, up->dims[1]);
  }
  KVANT_ASSIGN(const int64_t count, metadata.CountOr("expert_shared_count", kExpertsMax, 0));
  KVANT_ASSIGN(const int64_t width, metadata.CountOr(kSharedWidth, kDimMax, 0));
  if (traits.shared == SharedExpert::kPlain && count == 0 && width == 0) return 0;
  return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing", metadata.file().path(), name);
}

// Files of early 2024 have a tensor for each expert.
Status RefuseSingleExperts(const Metadata& metadata, const std::string& prefix) {
  const std::string name = prefix + "ffn_gate.0.weight";
  if (metadata.file().FindTensor(name) == nullptr) return {};
  return MakeError(ErrorCode::kNotSupported,
                   "{}: tensor {} holds a single expert, as in files of early 2024, which is not "
                   "supported; expected all experts of a layer in {}ffn_gate_exps.weight",
                   metadata.file().path(), name, prefix);
}

// A layer with experts must have its number in an array.
Status NeedNumber(const Metadata& metadata, const char* key, int64_t number, size_t layer) {
  if (number > 0) return {};
  return MakeError(ErrorCode::kCorrupt,
                   "{}: key {}: layer {}, which has experts: expected at least 1, found 0",
                   metadata.file().path(), metadata.Key(key), layer);
}

// Columns that the experts of a layer read and write.
int64_t ExpertDim(const Experts& spec, const SublayerBuilder& builder) {
  return spec.latent > 0 ? spec.latent : builder.dim();
}

// Gate and up of all experts, one matrix or two, or up alone.
Result<std::vector<ExpertOperand>> FindGateUp(const Experts& spec, SublayerBuilder& builder) {
  graph::PlanBuilder& plan = builder.plan();
  const int64_t experts = spec.routing.experts;
  const int64_t dim = ExpertDim(spec, builder);
  std::vector<ExpertOperand> operands;
  if (spec.kind == ExpertKind::kPlain) {
    KVANT_TRY(
        plan.AddExpertOperand(operands, builder.Name("ffn_up_exps"), dim, spec.width, experts));
    return operands;
  }
  if (plan.Find(builder.Name("ffn_gate_up_exps.weight")) != nullptr) {
    KVANT_TRY(plan.AddExpertOperand(operands, builder.Name("ffn_gate_up_exps"), dim, 2 * spec.width,
                                    experts));
    return operands;
  }
  for (const char* name : {"ffn_gate_exps", "ffn_up_exps"}) {
    KVANT_TRY(plan.AddExpertOperand(operands, builder.Name(name), dim, spec.width, experts));
  }
  return operands;
}

// The matrices that multiply rows of tokens, without the experts' own.
struct TokenMatrices {
  std::vector<MatMulOperand> router;  // and, as its last row, the gate of the shared expert
  std::vector<MatMulOperand> shared_gate_up;
  std::vector<MatMulOperand> shared_down;
  std::vector<MatMulOperand> latent_down;
  std::vector<MatMulOperand> latent_up;

  // The matrices that read the normed input of the sublayer.
  std::vector<MatMulOperand> Readers(RouterInput input) const {
    std::vector<MatMulOperand> readers;
    if (input == RouterInput::kNormed) readers = router;
    readers.insert(readers.end(), shared_gate_up.begin(), shared_gate_up.end());
    readers.insert(readers.end(), latent_down.begin(), latent_down.end());
    return readers;
  }
};

// Whether gate and up of the shared expert are one matrix.
bool IsSharedFused(const Experts& spec, SublayerBuilder& builder) {
  const formats::GgufTensor* up = builder.plan().Find(builder.Name("ffn_up_shexp.weight"));
  return spec.kind == ExpertKind::kGated && up != nullptr && up->dims[1] == 2 * spec.shared_width &&
         builder.plan().Find(builder.Name("ffn_gate_shexp.weight")) == nullptr;
}

Result<TokenMatrices> FindTokenMatrices(const Experts& spec, SublayerBuilder& builder) {
  TokenMatrices found;
  if (spec.router_input == RouterInput::kScaled) {
    // The tensor that would be the matrix's own scale is that of its input.
    KVANT_ASSIGN(const formats::GgufTensor* router,
                 builder.plan().Matrix(builder.Name("ffn_gate_inp.weight"), builder.dim(),
                                       spec.routing.experts));
    found.router.push_back({router, {}, 0});
    return found;
  }
  std::vector<StackedMatrix> router = {{"ffn_gate_inp", spec.routing.experts}};
  if (spec.shared == SharedExpert::kGated) router.push_back({"ffn_gate_inp_shexp", 1});
  KVANT_ASSIGN(found.router, builder.Separate(builder.dim(), router));
  if (spec.latent > 0) {
    const StackedMatrix down[] = {{"ffn_latent_down", spec.latent}};
    const StackedMatrix up[] = {{"ffn_latent_up", builder.dim()}};
    KVANT_ASSIGN(found.latent_down, builder.Separate(builder.dim(), down));
    KVANT_ASSIGN(found.latent_up, builder.Separate(spec.latent, up));
  }
  if (spec.shared == SharedExpert::kNone) return found;
  std::vector<StackedMatrix> gate_up = {{"ffn_gate_shexp", spec.shared_width},
                                        {"ffn_up_shexp", spec.shared_width}};
  if (spec.kind == ExpertKind::kPlain) gate_up.erase(gate_up.begin());
  if (IsSharedFused(spec, builder)) gate_up = {{"ffn_up_shexp", 2 * spec.shared_width}};
  const StackedMatrix down[] = {{"ffn_down_shexp", builder.dim()}};
  KVANT_ASSIGN(found.shared_gate_up, builder.Separate(builder.dim(), gate_up));
  KVANT_ASSIGN(found.shared_down, builder.Separate(spec.shared_width, down));
  return found;
}

// The router's input where the router does not read what the experts read.
Result<Activations> AddScaledInput(const Experts& spec, SublayerBuilder& builder,
                                   const std::vector<MatMulOperand>& router) {
  graph::PlanBuilder& plan = builder.plan();
  const std::string name = builder.Name("ffn_gate_inp.scale");
  graph::Norm norm = {.kind = NormKind::kRms, .epsilon = spec.router_epsilon};
  KVANT_ASSIGN(norm.weight, plan.Vector(name, builder.dim()));
  for (float& weight : norm.weight) weight /= std::sqrt(static_cast<float>(builder.dim()));
  const Activations scaled =
      plan.NewActivations(builder.Name("router_in"), RowSpace::kPass, builder.dim(), router);
  plan.Add(RowSpace::kPass,
           graph::MakeNorm(plan.kernels(), name, std::move(norm), builder.source(), scaled));
  return scaled;
}

// The logits of the router, and what follows from them.
Result<RoutedRows> AddRouter(const Experts& spec, SublayerBuilder& builder,
                             std::vector<MatMulOperand> router, const Activations& normed,
                             ValueId logits) {
  graph::PlanBuilder& plan = builder.plan();
  const int64_t experts = spec.routing.experts;
  KVANT_ASSIGN(auto bias, plan.OptionalVector(builder.Name("exp_probs_b.bias"), experts));
  if (bias.empty()) {
    KVANT_ASSIGN(bias, plan.OptionalVector(builder.Name("exp_probs_b"), experts));  // as Hy3 has it
  }
  plan.AddMatMul(RowSpace::kPass, builder.Name("ffn_gate_inp"), std::move(router), normed, logits,
                 cpu::Store::kSet);
  RoutedRows rows = NewRoutedRows(plan.plan(), builder.Name("experts"), experts, spec.routing.used);
  rows.weighs = spec.routing.weighs;
  plan.Add(RowSpace::kPass, graph::MakeChooseExperts(builder.Name("choose"), spec.routing,
                                                     std::move(bias), logits, rows));
  plan.Add(RowSpace::kPass, graph::MakeSortByExpert(builder.Name("sort"), rows));
  return rows;
}

// The activated products of gate and up, or of up alone.
void AddExpertUnit(const Experts& spec, SublayerBuilder& builder,
                   std::vector<ExpertOperand> operands, const RoutedRows& rows,
                   const Activations& in, const Activations& out) {
  graph::PlanBuilder& plan = builder.plan();
  const std::string name = builder.Name("expert_gate_up");
  plan.AddExpertObserver(name, rows, in);
  if (spec.kind == ExpertKind::kGated) {
    const ValueId gate_up = plan.NewRoutedFloats(name, rows, 2 * spec.width);
    plan.Add(RowSpace::kPass,
             graph::MakeExpertUnit(plan.kernels(), plan.float_gemm(), name, std::move(operands),
                                   rows, in, spec.activation, gate_up, out));
    return;
  }
  const ValueId up = plan.NewRoutedFloats(name, rows, spec.width);
  plan.Add(RowSpace::kPass, graph::MakeExpertMatMul(plan.kernels(), plan.float_gemm(), name,
                                                    std::move(operands.front()), rows, in, up));
  plan.Add(RowSpace::kPass, graph::MakeActivate(plan.kernels(), builder.Name("expert_activated"),
                                                spec.activation.activation, up, out));
}

// The results of the experts for the tokens of a pass: a row for each expert of each token.
Result<ValueId> AddRoutedExperts(const Experts& spec, SublayerBuilder& builder,
                                 std::vector<ExpertOperand> gate_up_operands,
                                 const RoutedRows& rows, const Activations& in) {
  graph::PlanBuilder& plan = builder.plan();
  const int64_t dim = ExpertDim(spec, builder);
  std::vector<ExpertOperand> down;
  KVANT_TRY(plan.AddExpertOperand(down, builder.Name("ffn_down_exps"), spec.width, dim,
                                  spec.routing.experts));
  const Activations routed =
      plan.NewRoutedActivations(builder.Name("routed"), rows, dim, gate_up_operands);
  plan.Add(RowSpace::kPass,
           graph::MakeGatherRows(plan.kernels(), builder.Name("gather"), rows, in, routed));
  const Activations product =
      plan.NewRoutedActivations(builder.Name("expert_gated"), rows, spec.width, down);
  AddExpertUnit(spec, builder, std::move(gate_up_operands), rows, routed, product);
  const std::string down_name = builder.Name("expert_down");
  plan.AddExpertObserver(down_name, rows, product);
  const ValueId out = plan.NewRoutedFloats(down_name, rows, dim);
  plan.Add(RowSpace::kPass, graph::MakeExpertMatMul(plan.kernels(), plan.float_gemm(), down_name,
                                                    std::move(down.front()), rows, product, out));
  return out;
}

// The row that the down matrix of the shared expert multiplies.
Activations AddSharedUnit(const Experts& spec, SublayerBuilder& builder,
                          const TokenMatrices& matrices, const Activations& normed) {
  graph::PlanBuilder& plan = builder.plan();
  const std::string name = builder.Name("shared_gate_up");
  const Activations product = plan.NewActivations(builder.Name("shared_gated"), RowSpace::kPass,
                                                  spec.shared_width, matrices.shared_down);
  if (spec.kind == ExpertKind::kGated) {
    const ValueId gate_up = plan.NewFloats(name, RowSpace::kPass, 2 * spec.shared_width);
    plan.AddGatedUnit(name, matrices.shared_gate_up, normed, spec.shared_activation, gate_up,
                      product);
    return product;
  }
  const ValueId up = plan.NewFloats(name, RowSpace::kPass, spec.shared_width);
  plan.AddMatMul(RowSpace::kPass, name, matrices.shared_gate_up, normed, up, cpu::Store::kSet);
  plan.Add(RowSpace::kPass, graph::MakeActivate(plan.kernels(), builder.Name("shared_activated"),
                                                spec.shared_activation.activation, up, product));
  return product;
}

// The result of the shared expert for the normed rows.
ValueId AddSharedExpert(const Experts& spec, SublayerBuilder& builder,
                        const TokenMatrices& matrices, const Activations& normed) {
  graph::PlanBuilder& plan = builder.plan();
  const Activations product = AddSharedUnit(spec, builder, matrices, normed);
  const std::string down_name = builder.Name("ffn_down_shexp");
  const ValueId out = plan.NewFloats(down_name, RowSpace::kPass, builder.dim());
  plan.AddMatMul(RowSpace::kPass, down_name, matrices.shared_down, product, out, cpu::Store::kSet);
  return out;
}

// A value of floats with what its readers read of it besides.
Activations WithFloats(graph::PlanBuilder& plan, const std::string& name, Activations value) {
  if (value.floats == graph::kNoValue) {
    value.floats = plan.NewFloats(name, RowSpace::kPass, value.cols);
  }
  return value;
}

void AddQuantized(graph::PlanBuilder& plan, const std::string& name, const Activations& value) {
  if (value.int8 == graph::kNoValue) return;
  plan.Add(RowSpace::kPass, graph::MakeQuantize(plan.kernels(), name + ".int8", value));
}

// The latents of the normed rows, which the experts read.
Activations AddLatents(const Experts& spec, SublayerBuilder& builder, const TokenMatrices& matrices,
                       const Activations& normed, const std::vector<ExpertOperand>& readers) {
  graph::PlanBuilder& plan = builder.plan();
  const std::string name = builder.Name("ffn_latent");
  const Activations latents =
      WithFloats(plan, name, plan.NewActivations(name, RowSpace::kPass, spec.latent, {}, readers));
  plan.AddMatMul(RowSpace::kPass, builder.Name("ffn_latent_down"), matrices.latent_down, normed,
                 latents.floats, cpu::Store::kSet);
  AddQuantized(plan, name, latents);
  return latents;
}

// The sum of experts on latents. The families that have them have no norm after it.
Status AddLatentSum(const Experts& spec, SublayerBuilder& builder, TokenMatrices matrices,
                    const RoutedRows& rows, ValueId products, const Activations& normed) {
  graph::PlanBuilder& plan = builder.plan();
  const std::string name = builder.Name("ffn_latent_sum");
  const Activations sum = WithFloats(
      plan, name, plan.NewActivations(name, RowSpace::kPass, spec.latent, matrices.latent_up));
  plan.Add(RowSpace::kPass, graph::MakeSumExperts(builder.Name("sum_experts"), rows, products, {},
                                                  spec.latent, sum.floats, cpu::Store::kSet));
  AddQuantized(plan, name, sum);
  KVANT_TRY(builder.AddToStream("ffn_latent_up", std::move(matrices.latent_up), sum));
  if (spec.shared == SharedExpert::kNone) return {};
  const Activations shared = AddSharedUnit(spec, builder, matrices, normed);
  return builder.AddToStream("ffn_down_shexp", std::move(matrices.shared_down), shared);
}

}  // namespace

Status Experts::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  KVANT_ASSIGN(TokenMatrices matrices, FindTokenMatrices(*this, builder));
  KVANT_ASSIGN(std::vector<ExpertOperand> gate_up, FindGateUp(*this, builder));
  const bool has_latents = latent > 0;
  KVANT_ASSIGN(const Activations normed,
               builder.AddInput("ffn_normed", matrices.Readers(router_input),
                                has_latents ? std::vector<ExpertOperand>() : gate_up));
  Activations router_reads = normed;
  if (router_input == RouterInput::kScaled) {
    KVANT_ASSIGN(router_reads, AddScaledInput(*this, builder, matrices.router));
  }
  const int64_t gate_rows = shared == SharedExpert::kGated ? 1 : 0;
  const ValueId logits =
      plan.NewFloats(builder.Name("router_logits"), RowSpace::kPass, routing.experts + gate_rows);
  KVANT_ASSIGN(const RoutedRows rows,
               AddRouter(*this, builder, std::move(matrices.router), router_reads, logits));
  const Activations in =
      has_latents ? AddLatents(*this, builder, matrices, normed, gate_up) : normed;
  KVANT_ASSIGN(const ValueId products,
               AddRoutedExperts(*this, builder, std::move(gate_up), rows, in));
  if (has_latents) {
    return AddLatentSum(*this, builder, std::move(matrices), rows, products, normed);
  }
  graph::SharedProduct shared_product;
  if (shared != SharedExpert::kNone) {
    shared_product.product = AddSharedExpert(*this, builder, matrices, normed);
  }
  if (shared == SharedExpert::kGated) {
    shared_product.gate = logits;
    shared_product.gate_col = routing.experts;
  }
  const SublayerBuilder::Target target = builder.BeginResult("ffn_moe");
  plan.Add(RowSpace::kPass,
           graph::MakeSumExperts(builder.Name("sum_experts"), rows, products, shared_product,
                                 builder.dim(), target.value, target.store));
  const std::string bias_name = builder.Name("ffn_exps.bias");
  KVANT_ASSIGN(auto bias, plan.OptionalVector(bias_name, builder.dim()));
  if (!bias.empty()) {
    plan.Add(RowSpace::kPass, graph::MakeAddVector(bias_name, std::move(bias), target.value));
  }
  return builder.EndResult(target);
}

Result<std::vector<std::optional<Experts>>> ReadExperts(const Metadata& metadata,
                                                        const Stack& stack,
                                                        const ExpertTraits& traits) {
  const size_t layers = stack.layers.size();
  std::vector<std::optional<Experts>> list(layers);
  const auto prefix = [&stack](size_t layer) {
    return fmt::format("{}.{}.", stack.layer_prefix, layer);
  };
  const auto has_router = [&](size_t layer) {
    return metadata.file().FindTensor(prefix(layer) + "ffn_gate_inp.weight") != nullptr;
  };
  bool any = false;
  for (size_t i = 0; i < layers; ++i) any = any || has_router(i);
  KVANT_ASSIGN(const int64_t experts, metadata.CountOr("expert_count", kExpertsMax, 0));
  if (!any && experts == 0) return list;
  if (experts == 0) return metadata.Missing("expert_count");
  if (!any) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: key {}: {} experts, but no layer has a router (ffn_gate_inp.weight)",
                     metadata.file().path(), metadata.Key("expert_count"), experts);
  }
  // Arrays have zeros for layers without experts.
  const char* width_key = metadata.Has("expert_feed_forward_length") ? "expert_feed_forward_length"
                                                                     : "feed_forward_length";
  KVANT_ASSIGN(const auto used,
               metadata.CountOrNonePerLayer("expert_used_count", layers, kExpertsUsedMax));
  KVANT_ASSIGN(const auto widths, metadata.CountOrNonePerLayer(width_key, layers, kDimMax));
  std::vector<float> bounds(layers);
  std::vector<float> shared_bounds(layers);
  if (traits.limits != ExpertLimits::kNone) {
    KVANT_ASSIGN(bounds, ReadBounds(metadata, kExpertLimitKey, layers));
    KVANT_ASSIGN(shared_bounds, ReadBounds(metadata, kSharedLimitKey, layers));
  }
  int64_t latent = 0;
  if (traits.kind == ExpertKind::kPlain) {
    KVANT_ASSIGN(latent, metadata.CountOr("moe_latent_size", kDimMax, 0));
  }
  for (size_t i = 0; i < layers; ++i) {
    if (!has_router(i)) continue;
    KVANT_TRY(RefuseSingleExperts(metadata, prefix(i)));
    KVANT_TRY(NeedNumber(metadata, "expert_used_count", used[i], i));
    KVANT_TRY(NeedNumber(metadata, width_key, widths[i], i));
    Experts& layer = list[i].emplace();
    KVANT_ASSIGN(layer.routing, ReadRouting(metadata, traits, experts, used[i]));
    layer.width = widths[i];
    layer.activation = layer.shared_activation = traits.activation;
    SetLimits(traits.limits, bounds[i], layer.activation);
    SetLimits(traits.limits, shared_bounds[i], layer.shared_activation);
    layer.kind = traits.kind;
    layer.latent = latent;
    layer.router_input = traits.router_input;
    layer.router_epsilon = stack.final_norm.epsilon;
    KVANT_ASSIGN(layer.shared_width, ReadSharedWidth(metadata, traits, prefix(i)));
    if (layer.shared_width > 0) layer.shared = traits.shared;
  }
  return list;
}

}  // namespace kvant::arch
