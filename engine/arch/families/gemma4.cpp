// Gemma 4, the text models: heads of layers with a window and of layers that see everything differ
// in size and number; the rope of layers that see everything rotates the first pairs of a head
// only; queries and keys are normed with weights, values without; values may be the keys; the last
// layers may read the keys and values of earlier ones; experts may stand beside each feed-forward,
// and inputs by the token in each layer.
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"
#include "engine/tokenizer/kinds.h"

namespace kvant::arch::gemma4 {
namespace {

constexpr std::string_view kName = "gemma4";
constexpr int64_t kPattern = 6;  // every sixth layer sees all positions
constexpr double kLocalBase = 10000.0;
constexpr double kGlobalBase = 1000000.0;
constexpr double kRotatedShare = 0.25;  // of the pairs of a head
constexpr int64_t kGlobalHeadDim = 512;

// The divisor of the angles of pairs that are not rotated.
constexpr float kStill = 1e30f;

// The rope of layers with a window, which stretches nothing.
Result<graph::RopeSpec> ReadLocalRope(const Metadata& metadata, int64_t k_dim) {
  graph::RopeSpec rope;
  rope.style = cpu::RopeStyle::kHalves;
  KVANT_ASSIGN(rope.n_rot, metadata.CountOr("rope.dimension_count_swa", kDimMax, k_dim));
  if (rope.n_rot > k_dim || rope.n_rot % 2 != 0) {
    return MakeError(
        ErrorCode::kCorrupt, "{}: key {}: expected an even number up to the head size {}, found {}",
        metadata.file().path(), metadata.Key("rope.dimension_count_swa"), k_dim, rope.n_rot);
  }
  KVANT_ASSIGN(rope.base,
               metadata.PositiveOr("rope.freq_base_swa", static_cast<float>(kLocalBase)));
  return rope;
}

// Gives layers with a window their size of heads, and both kinds their masks and norms.
Status ReadKinds(const Metadata& metadata, const Stack& stack, const std::vector<bool>& windows,
                 std::vector<Attention>& attentions) {
  for (size_t i = 0; i < attentions.size(); ++i) {
    Attention& attention = attentions[i];
    attention.scale = 1;
    attention.head_norms = HeadNorms::kRequired;
    attention.norm_values = true;
    if (windows[i]) {
      if (attention.mask.window == 0) return metadata.Missing("attention.sliding_window");
      KVANT_ASSIGN(attention.k_dim,
                   metadata.CountOr("attention.key_length_swa", kHeadDimMax, attention.k_dim));
      KVANT_ASSIGN(attention.v_dim,
                   metadata.CountOr("attention.value_length_swa", kHeadDimMax, attention.v_dim));
    } else {
      attention.mask = {};
    }
    const auto has = [&](const char* name) {
      return metadata.file().FindTensor(fmt::format("{}.{}.{}", stack.layer_prefix, i, name)) !=
             nullptr;
    };
    attention.values_are_keys = !has("attn_v.weight") && !has("attn_qkv.weight");
    if (attention.values_are_keys && attention.v_dim != attention.k_dim) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: layer {}: without attn_v.weight, expected values of {} numbers as "
                       "keys have, found {}",
                       metadata.file().path(), i, attention.k_dim, attention.v_dim);
    }
  }
  return {};
}

Status ReadBothRopes(const Metadata& metadata, const std::vector<bool>& windows,
                     std::vector<Attention>& attentions, std::vector<graph::RopeSpec>& ropes) {
  std::optional<size_t> local;
  std::optional<size_t> global;
  for (size_t i = 0; i < attentions.size(); ++i) {
    std::optional<size_t>& rope = windows[i] ? local : global;
    if (!rope.has_value()) {
      KVANT_ASSIGN(ropes.emplace_back(),
                   windows[i] ? ReadLocalRope(metadata, attentions[i].k_dim)
                              : ReadRope(metadata, cpu::RopeStyle::kHalves, attentions[i].k_dim));
      rope = ropes.size() - 1;
    }
    attentions[i].rope = *rope;
  }
  return {};
}

Result<std::vector<Block>> ReadFfns(const Metadata& metadata, const Stack& stack) {
  constexpr cpu::Activation kGelu = cpu::Activation::kGeluTanh;
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, kGelu));
  KVANT_ASSIGN(
      const auto experts,
      ReadExperts(metadata, stack,
                  {.normalize = true, .activation = kGelu, .router_input = RouterInput::kScaled}));
  const auto norm = [&stack](std::string_view tensor) {
    return Norm{NormKind::kRms, tensor, stack.final_norm.epsilon};
  };
  const bool any = std::ranges::any_of(experts, [](const auto& one) { return one.has_value(); });
  std::vector<Block> blocks;
  for (size_t i = 0; i < ffns.size(); ++i) {
    if (any && !experts[i].has_value()) {
      return MakeError(ErrorCode::kCorrupt, "{}: tensor {}.{}.ffn_gate_inp.weight is missing",
                       metadata.file().path(), stack.layer_prefix, i);
    }
    if (!experts[i].has_value()) {
      blocks.emplace_back(ffns[i]);
      continue;
    }
    blocks.emplace_back(FfnAndExperts{.ffn = ffns[i],
                                      .experts = *experts[i],
                                      .before_ffn = norm("ffn_norm"),
                                      .after_ffn = norm("post_ffw_norm_1"),
                                      .before_experts = norm("pre_ffw_norm_2"),
                                      .after_experts = norm("post_ffw_norm_2")});
  }
  return blocks;
}

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_ASSIGN(const auto windows,
               metadata.FlagPerLayer("attention.sliding_window_pattern", attentions.size()));
  if (!windows.has_value()) return metadata.Missing("attention.sliding_window_pattern");
  KVANT_TRY(ReadKinds(metadata, stack, *windows, attentions));
  KVANT_TRY(ReadBothRopes(metadata, *windows, attentions, model.ropes));
  KVANT_TRY(ShareKeys(metadata, *windows, attentions));
  KVANT_ASSIGN(const std::vector<Block> ffns, ReadFfns(metadata, stack));
  KVANT_ASSIGN(stack.layer_inputs, ReadLayerInputs(metadata, stack));
  KVANT_ASSIGN(stack.output.cap, metadata.PositiveOr("final_logit_softcapping", 0));
  stack.input.scale = std::sqrt(static_cast<float>(stack.dim));
  FillLayers(stack, {.after_attention = "post_attention_norm", .after_ffn = "post_ffw_norm"},
             AsBlocks(attentions), ffns);
  for (LayerSpec& layer : stack.layers) {
    layer.output_scale = "layer_output_scale";
    // The block's norm stands within it.
    if (std::holds_alternative<FfnAndExperts>(layer.sublayers.back().block)) {
      layer.sublayers.back().norm_before = {};
    }
    if (!stack.layer_inputs.has_value()) continue;
    const Norm after = {NormKind::kRms, "post_norm", stack.final_norm.epsilon};
    layer.sublayers.push_back({{}, LayerInput{.width = stack.layer_inputs->width}, after});
  }
  return model;
}

constexpr std::string_view kClasses[] = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"};

constexpr HfTensor In(InLayers layers, HfTensor tensor) {
  tensor.layers = layers;
  return tensor;
}

constexpr HfTensor InVector(std::string_view hf_name, std::string_view gguf_name, Extent size,
                            InLayers layers = InLayers::kAll) {
  return {.hf_name = hf_name, .gguf_name = gguf_name, .rows = size, .layers = layers};
}

constexpr std::array<HfTensor, 9> kAttention = {
    kHfSeparateQkv[0],
    kHfSeparateQkv[1],
    In(InLayers::kWithKeys, kHfSeparateQkv[2]),
    In(InLayers::kWithKeys, kHfSeparateQkv[3]),
    In(InLayers::kWithValues, kHfSeparateQkv[4]),
    In(InLayers::kWithValues, kHfSeparateQkv[5]),
    kHfHeadNorms[0],
    In(InLayers::kWithKeys, kHfHeadNorms[1]),
    InVector("model.layers.{}.layer_scalar", "blk.{}.layer_output_scale.weight", Extent::kOne),
};

constexpr std::array<HfTensor, 8> kExperts = {
    HfOfExperts("model.layers.{}.router.proj.weight", kRouterName, Extent::kExperts, Extent::kDim),
    InVector("model.layers.{}.router.scale", "blk.{}.ffn_gate_inp.scale", Extent::kDim,
             InLayers::kWithExperts),
    InVector("model.layers.{}.router.per_expert_scale", "blk.{}.ffn_down_exps.scale",
             Extent::kExperts, InLayers::kWithExperts),
    HfOfExperts("model.layers.{}.experts.gate_up_proj", "blk.{}.ffn_gate_up_exps.weight",
                Extent::kTwoExpertFfn, Extent::kDim, ExpertForm::kStacked),
    HfOfExperts("model.layers.{}.experts.down_proj", "blk.{}.ffn_down_exps.weight", Extent::kDim,
                Extent::kExpertFfn, ExpertForm::kStacked),
    InVector("model.layers.{}.post_feedforward_layernorm_1.weight", "blk.{}.post_ffw_norm_1.weight",
             Extent::kDim, InLayers::kWithExperts),
    InVector("model.layers.{}.pre_feedforward_layernorm_2.weight", "blk.{}.pre_ffw_norm_2.weight",
             Extent::kDim, InLayers::kWithExperts),
    InVector("model.layers.{}.post_feedforward_layernorm_2.weight", "blk.{}.post_ffw_norm_2.weight",
             Extent::kDim, InLayers::kWithExperts),
};

constexpr auto kTensors =
    Join(kHfEnds, kHfLayerInputs, kHfNormBeforeAttention, kAttention, kHfAttentionOutput,
         kHfNormsBetweenSublayers, kHfSeparateGateUp, kHfDown, kExperts, kHfNormAfterFfn);

// The size and the number of kv heads of each layer: newer folders give them by the number of the
// layer, older ones for the layers that see everything.
Status ReadHeads(const JsonObject& config, const std::vector<bool>& windows, HfShape& shape) {
  KVANT_ASSIGN(const int64_t head_dim, config.Count("head_dim", kHeadDimMax));
  KVANT_ASSIGN(const auto global_dim, config.Integer("global_head_dim", kHeadDimMax));
  KVANT_ASSIGN(const auto global_kv_heads, config.Integer("num_global_key_value_heads", kHeadsMax));
  KVANT_ASSIGN(const auto by_layer, config.Object("per_layer_config"));
  KVANT_ASSIGN(const auto keys_are_values, config.Bool("attention_k_eq_v"));
  const bool k_eq_v = keys_are_values.value_or(false);
  for (size_t i = 0; i < windows.size(); ++i) {
    HfLayerSizes& sizes = shape.layer_sizes.emplace_back();
    sizes = {.head_dim = head_dim, .kv_heads = shape.kv_heads, .ffn = shape.ffn};
    sizes.own_values = windows[i] || !k_eq_v;
    if (by_layer.has_value()) {
      KVANT_ASSIGN(const auto own, by_layer->Object(std::to_string(i)));
      if (!own.has_value()) continue;
      KVANT_ASSIGN(const auto dim, own->Integer("head_dim", kHeadDimMax));
      KVANT_ASSIGN(const auto kv_heads, own->Integer("num_key_value_heads", kHeadsMax));
      sizes.head_dim = dim.value_or(head_dim);
      sizes.kv_heads = kv_heads.value_or(shape.kv_heads);
    } else if (!windows[i]) {
      sizes.head_dim = global_dim.value_or(kGlobalHeadDim);
      if (k_eq_v) sizes.kv_heads = global_kv_heads.value_or(shape.kv_heads);
    }
    if (sizes.head_dim % 2 != 0 || sizes.head_dim == 0 || sizes.kv_heads == 0 ||
        shape.heads % sizes.kv_heads != 0) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: layer {}: {} kv heads of {} numbers, expected a divisor of {} heads "
                       "and an even number",
                       config.where(), i, sizes.kv_heads, sizes.head_dim, shape.heads);
    }
  }
  return {};
}

// The size of heads that layers with a window have, or the others; 0 where there is no such layer.
Result<int64_t> HeadDimOf(const JsonObject& config, const HfShape& shape,
                          const std::vector<bool>& windows, bool window) {
  int64_t found = 0;
  for (size_t i = 0; i < windows.size(); ++i) {
    if (windows[i] != window) continue;
    const int64_t dim = shape.layer_sizes[i].head_dim;
    if (found != 0 && found != dim) {
      return MakeError(ErrorCode::kNotSupported,
                       "{}: layer {}: heads of {} numbers, expected {} as in other layers of its "
                       "kind",
                       config.where(), i, dim, found);
    }
    found = dim;
  }
  return found;
}

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const auto windows, ReadWindowLayers(config, shape.layers, kPattern));
  KVANT_TRY(ReadHeads(config, windows, shape));
  KVANT_ASSIGN(const auto shared, config.Integer("num_kv_shared_layers", shape.layers - 1));
  KVANT_ASSIGN(const auto wide, config.Bool("use_double_wide_mlp"));
  for (auto i = static_cast<size_t>(shape.layers - shared.value_or(0)); i < windows.size(); ++i) {
    HfLayerSizes& sizes = shape.layer_sizes[i];
    sizes.own_keys = sizes.own_values = false;
    if (wide.value_or(false)) sizes.ffn *= 2;
  }
  KVANT_ASSIGN(const auto inputs, config.Integer("hidden_size_per_layer_input", kDimMax));
  shape.layer_inputs = inputs.value_or(0);
  return {};
}

// The rope of layers that see everything: the first pairs are rotated, by angles of the whole head.
Status AddGlobalRope(const JsonObject& config, int64_t head_dim, Parameters& out) {
  KVANT_ASSIGN(const RopeSettings settings, RopeSettings::Read(config));
  KVANT_ASSIGN(const auto type, settings.Type());
  if (type.has_value() && type != "proportional") {
    return settings.UnsupportedType("default, proportional");
  }
  KVANT_ASSIGN(const auto given, settings.Number("partial_rotary_factor"));
  KVANT_ASSIGN(const double divisor, settings.PositiveOr("factor", 1));
  // Without settings the class has its own, which are proportional.
  const bool told = settings.Has("rope_type") || settings.Has("rope_theta");
  const double own_share = told ? 1 : kRotatedShare;
  const double share = type.has_value() ? given.value_or(1) : own_share;
  const double factor = type.has_value() ? divisor : 1;
  if (!(share > 0 && share <= 1)) {
    return settings.Wrong("partial_rotary_factor", "a number above 0, at most 1");
  }
  const auto rotated = static_cast<size_t>(share * static_cast<double>(head_dim) / 2);
  std::vector<float> factors(static_cast<size_t>(head_dim / 2), kStill);
  std::fill_n(factors.begin(), rotated, static_cast<float>(factor));
  out.tensors.push_back({"rope_freqs.weight", std::move(factors)});
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(head_dim));
  return {};
}

Status AddLocalRope(const JsonObject& config, int64_t head_dim, Parameters& out) {
  KVANT_ASSIGN(const float base, ReadWindowRopeBase(config, "rope_local_base_freq", kLocalBase));
  out.writer->AddF32(out.Key("rope.freq_base_swa"), base);
  out.writer->AddU32(out.Key("rope.dimension_count_swa"), static_cast<uint32_t>(head_dim));
  return {};
}

Status CheckSettings(const JsonObject& config, const HfShape& shape) {
  KVANT_ASSIGN(const auto both_ways, config.String("use_bidirectional_attention"));
  if (both_ways == "all") {
    return MakeError(ErrorCode::kNotSupported, "{}: \"all\" is not supported",
                     config.Where("use_bidirectional_attention"));
  }
  KVANT_ASSIGN(const auto experts, config.Bool("enable_moe_block"));
  if (experts.value_or(false) != (shape.experts > 0)) {
    return MakeError(ErrorCode::kNotSupported, "{}: expected {} with {} experts",
                     config.Where("enable_moe_block"), shape.experts > 0, shape.experts);
  }
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(CheckSettings(config, shape));
  const auto add = [&out](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  KVANT_ASSIGN(const auto windows, ReadWindowLayers(config, shape.layers, kPattern));
  KVANT_ASSIGN(const int64_t local_dim, HeadDimOf(config, shape, windows, true));
  KVANT_ASSIGN(const int64_t global_dim, HeadDimOf(config, shape, windows, false));
  KVANT_TRY(AddWindowFlags(config, windows, out));
  for (const char* kind : {"attention.key_length", "attention.value_length"}) {
    add(kind, global_dim > 0 ? global_dim : local_dim);
    if (local_dim > 0) add(fmt::format("{}_swa", kind), local_dim);
  }
  if (global_dim > 0) KVANT_TRY(AddGlobalRope(config, global_dim, out));
  if (local_dim > 0) KVANT_TRY(AddLocalRope(config, local_dim, out));
  int64_t shared = 0;
  for (const HfLayerSizes& sizes : shape.layer_sizes) shared += sizes.own_keys ? 0 : 1;
  add("attention.shared_kv_layers", shared);
  add("embedding_length_per_layer_input", shape.layer_inputs);
  KVANT_ASSIGN(const auto cap, config.Number("final_logit_softcapping"));
  if (!cap.has_value()) return {};
  return AddPositive(config, "final_logit_softcapping", "final_logit_softcapping", out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kGeluActivation,
    .finish_shape = FinishShape,
    .rope_base = kGlobalBase,
    .rope_share = 1,
    .window_ropes = true,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts", .used = "top_k_experts", .may_be_none = true},
    .tokenizer = kGemma4Kind,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Gemma 4", .read = Read, .hf = kHf};

}  // namespace kvant::arch::gemma4
