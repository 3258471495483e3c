// Step 3.5 and 3.7 Flash: norms of queries and keys, a gate for each head of the attention's
// result, layers with a window that have other numbers of heads and a rope of their own, and
// experts behind a sigmoid router, whose gates and ups are clamped in some layers. transformers
// stores the weights of norms less one.
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::step35 {
namespace {

constexpr std::string_view kName = "step35";
constexpr int64_t kUsualDense = 3;  // layers without experts at the beginning

// Layers that see everything rotate half of a head's dimensions.
void HalveRotation(const std::vector<bool>& windows, std::vector<Attention>& attentions,
                   std::vector<graph::RopeSpec>& ropes) {
  for (size_t i = 0; i < attentions.size(); ++i) {
    if (windows[i]) continue;
    graph::RopeSpec half = ropes[attentions[i].rope];
    half.n_rot = half.n_rot / 4 * 2;
    if (!half.factors.empty()) half.factors.resize(static_cast<size_t>(half.n_rot / 2));
    const auto found = std::ranges::find(ropes, half);
    attentions[i].rope = static_cast<size_t>(found - ropes.begin());
    if (found == ropes.end()) ropes.push_back(std::move(half));
  }
}

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  stack.predictors.reads_normed = false;
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto windows,
               metadata.FlagPerLayer("attention.sliding_window_pattern", attentions.size()));
  if (!windows.has_value()) return metadata.Missing("attention.sliding_window_pattern");
  KVANT_TRY(KeepWindows(metadata, *windows, attentions));
  KVANT_TRY(ReadWindowRopes(metadata, *windows, attentions, model.ropes));
  HalveRotation(*windows, attentions, model.ropes);
  KVANT_TRY(ReadResultGates(metadata, stack, cpu::Activation::kSigmoid, attentions));
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions,
                                  {.gating = graph::Gating::kSigmoid,
                                   .normalize = true,
                                   .shared = SharedExpert::kPlain,
                                   .limits = ExpertLimits::kAfterActivation}));
  return model;
}

// Published folders have the experts of a layer in three tensors.
constexpr std::array<HfTensor, 8> kExperts = {
    HfOfExperts("model.layers.{}.moe.gate.weight", kRouterName, Extent::kExperts, Extent::kDim),
    HfOfExperts("model.layers.{}.moe.router_bias", "blk.{}.exp_probs_b.bias", Extent::kExperts,
                Extent::kNone),
    HfOfExperts("model.layers.{}.moe.gate_proj.weight", "blk.{}.ffn_gate_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kStacked),
    HfOfExperts("model.layers.{}.moe.up_proj.weight", "blk.{}.ffn_up_exps.weight",
                Extent::kExpertFfn, Extent::kDim, ExpertForm::kStacked),
    HfOfExperts("model.layers.{}.moe.down_proj.weight", "blk.{}.ffn_down_exps.weight", Extent::kDim,
                Extent::kExpertFfn, ExpertForm::kStacked),
    HfOfExperts("model.layers.{}.share_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight",
                Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.share_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight",
                Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.share_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight",
                Extent::kDim, Extent::kSharedFfn),
};

constexpr auto kTensors = WithNormsPlusOne(
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms,
         HfGate("model.layers.{}.self_attn.g_proj.weight", Extent::kHeads), kHfAttentionOutput,
         kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kExperts));

// Reads which layers have a window. Layers behind them that predict further tokens may be told,
// too.
Result<std::vector<bool>> ReadWindows(const JsonObject& config, int64_t layers) {
  const formats::Json* types = config.Find("layer_types");
  if (types == nullptr || !types->is_array() || std::ssize(*types) < layers) {
    return config.Wrong("layer_types", fmt::format("an array of {} texts", layers));
  }
  std::vector<bool> windows;
  for (int64_t i = 0; i < layers; ++i) {
    const formats::Json& type = (*types)[static_cast<size_t>(i)];
    if (type != kMainLayers && type != kWindowLayers) {
      return config.Wrong("layer_types", "full_attention or sliding_attention for each layer");
    }
    windows.push_back(type == kWindowLayers);
  }
  return windows;
}

// Reads the heads of layers with a window: published folders have an object for them, folders that
// transformers saves a number.
Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const int64_t head_dim, config.Count("head_dim", kHeadDimMax));
  KVANT_ASSIGN(const auto windows, ReadWindows(config, shape.layers));
  KVANT_ASSIGN(const auto given, config.Integer("num_sliding_attention_heads", kHeadsMax));
  KVANT_ASSIGN(const auto other, config.Object("attention_other_setting"));
  int64_t heads = given.value_or(shape.heads);
  int64_t kv_heads = shape.kv_heads;
  if (other.has_value()) {
    KVANT_ASSIGN(const auto own_heads, other->Integer("num_attention_heads", kHeadsMax));
    KVANT_ASSIGN(const auto own_kv_heads, other->Integer("num_attention_groups", kHeadsMax));
    heads = own_heads.value_or(heads);
    kv_heads = own_kv_heads.value_or(kv_heads);
  }
  if (kv_heads < 1 || heads < 1 || heads % kv_heads != 0) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: layers with a window have {} heads and {} kv heads, expected a multiple",
                     config.where(), heads, kv_heads);
  }
  for (const bool window : windows) {
    HfLayerSizes sizes = {.head_dim = head_dim, .kv_heads = shape.kv_heads, .ffn = shape.ffn};
    if (window) sizes.kv_heads = kv_heads;
    sizes.heads = window ? heads : shape.heads;
    shape.layer_sizes.push_back(sizes);
  }
  return {};
}

// The base and the share of the ropes of both kinds of layers: published folders have lists by the
// layer, of which layers of a kind have the same number.
Status AddRopes(const JsonObject& config, const std::vector<bool>& windows, const HfShape& shape,
                Parameters& out) {
  const auto add = [&out, &shape](double full, double window) {
    out.writer->AddF32(out.Key("rope.freq_base"), static_cast<float>(full));
    out.writer->AddF32(out.Key("rope.freq_base_swa"), static_cast<float>(window));
    out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  };
  const formats::Json* bases = config.Find("rope_theta");
  if (bases == nullptr || !bases->is_array()) {
    KVANT_ASSIGN(const float full, ReadRopeBase(config, out.rope_base));
    KVANT_ASSIGN(const float window,
                 ReadWindowRopeBase(config, "rope_theta", static_cast<double>(full)));
    add(static_cast<double>(full), static_cast<double>(window));
    KVANT_ASSIGN(const RopeSettings settings, RopeSettings::Read(config));
    KVANT_ASSIGN(const auto share, settings.Number("partial_rotary_factor"));
    if (share.value_or(1) != 0.5) return settings.Wrong("partial_rotary_factor", "0.5");
    KVANT_TRY(AddRopeScaling(config, shape, shape.head_dim / 2, out));
    // Readers expect a factor for each pair of the whole head.
    for (ComputedTensor& factors : out.tensors) {
      factors.values.resize(static_cast<size_t>(shape.head_dim / 2), 1.0f);
    }
    return {};
  }
  KVANT_ASSIGN(const auto by_layer, config.Numbers("rope_theta"));
  KVANT_ASSIGN(const auto shares, config.Numbers("partial_rotary_factors"));
  double of_kind[2] = {out.rope_base, out.rope_base};  // of layers without and with a window
  for (size_t i = 0; i < windows.size(); ++i) {
    if (i >= by_layer->size() || !shares || i >= shares->size()) {
      return config.Wrong("rope_theta", "a number and a partial_rotary_factor for each layer");
    }
    if ((*shares)[i] != (windows[i] ? 1.0f : 0.5f)) {
      return config.Wrong("partial_rotary_factors", "1 in layers with a window, 0.5 in others");
    }
    of_kind[windows[i] ? 1 : 0] = static_cast<double>((*by_layer)[i]);
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    if (static_cast<double>((*by_layer)[i]) == of_kind[windows[i] ? 1 : 0]) continue;
    return config.Wrong("rope_theta",
                        "one number for all layers with a window, and for all others");
  }
  add(of_kind[0], of_kind[1]);
  return RefuseRopeScaling(config);
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseTrue(config, "attention_bias"));
  KVANT_ASSIGN(const auto scalar, config.Number("query_pre_attn_scalar"));
  if (scalar && *scalar != static_cast<double>(shape.head_dim)) {
    return config.Wrong("query_pre_attn_scalar", "head_dim");
  }
  KVANT_ASSIGN(const auto windows, ReadWindows(config, shape.layers));
  AddHeadDim(shape, out);
  KVANT_TRY(AddWindowFlags(config, windows, out));
  KVANT_TRY(AddLayerBounds(config, "swiglu_limits", kExpertLimitKey, shape.layers, out));
  KVANT_TRY(AddLayerBounds(config, "swiglu_limits_shared", kSharedLimitKey, shape.layers, out));
  // Published folders list the layers with experts; tensors say it to readers here.
  KVANT_ASSIGN(const auto listed, config.String("moe_layers_enum"));
  const int64_t first = listed ? std::strtoll(listed->c_str(), nullptr, 10) : kUsualDense;
  KVANT_ASSIGN(const int64_t dense, CountLeadingDense(config, shape.layers,
                                                      std::clamp<int64_t>(first, 0, shape.layers)));
  AddSigmoidGating(dense, out);
  KVANT_ASSIGN(const auto normalized, config.Bool("norm_expert_weight"));
  out.writer->AddBool(out.Key("expert_weights_norm"), normalized.value_or(true));
  KVANT_ASSIGN(const auto scale, config.Number("moe_router_scaling_factor"));
  if (scale.value_or(1) != 1) {
    KVANT_TRY(AddPositive(config, "moe_router_scaling_factor", "expert_weights_scale", out));
  }
  return AddRopes(config, windows, shape, out);
}

constexpr std::string_view kClasses[] = {"Step3p5ForCausalLM", "Step3p7ForConditionalGeneration"};

// Published folders have names of their own for some sizes.
bool IsPublished(const JsonObject& config) {
  return config.Find("num_attention_groups") != nullptr;
}

constexpr HfFamily Row() {
  return {
      .classes = kClasses,
      .arch = kName,
      .activation = kSiluActivation,
      .finish_shape = FinishShape,
      .own_rope_base = true,
      .rope_share = 0.5,
      .window_ropes = true,
      .tensors = kTensors,
      .add_parameters = AddParameters,
      .experts = {.count = "n_routed_experts", .shared_ffn = "share_expert_dim"},
  };
}

constexpr HfFamily PublishedRow() {
  HfFamily row = Row();
  row.is_of = IsPublished;
  row.keys.kv_heads = "num_attention_groups";
  row.experts.count = "moe_num_experts";
  row.experts.used = "moe_top_k";
  return row;
}

constexpr HfFamily kHf[] = {PublishedRow(), Row()};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Step 3.5 and 3.7", .read = Read, .hf = kHf};

}  // namespace kvant::arch::step35
