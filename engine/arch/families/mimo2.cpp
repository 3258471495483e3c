// MiMo V2: keys and values of different sizes, a window in most layers, which have more kv heads
// and a rope of their own and a sink in every head's softmax, a factor on values, and experts
// behind a sigmoid router whose choice has a bias of its own; the first layer has none.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::mimo2 {
namespace {

constexpr std::string_view kName = "mimo2";
constexpr const char* kValueScale = "attention.value_scale";

// A model has sinks in all layers with a window or in none of them; others may have some.
void GiveSinks(const Metadata& metadata, const std::vector<bool>& windows,
               std::string_view layer_prefix, std::vector<Attention>& attentions) {
  std::vector<bool> found;
  for (size_t i = 0; i < attentions.size(); ++i) {
    const std::string name = fmt::format("{}.{}.attn_sinks.weight", layer_prefix, i);
    found.push_back(metadata.file().FindTensor(name) != nullptr);
  }
  const bool any = std::ranges::find(found, true) != found.end();
  for (size_t i = 0; i < attentions.size(); ++i) {
    if (found[i] || (any && windows[i])) attentions[i].sinks = Sinks::kRequired;
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
  GiveSinks(metadata, *windows, stack.layer_prefix, attentions);
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions,
                                  {.gating = graph::Gating::kSigmoid,
                                   .normalize = true,
                                   .group_score = graph::GroupScore::kSumOfTopTwo}));
  // A factor of the values is one of the sum that the attention adds.
  KVANT_ASSIGN(const float scale, metadata.PositiveOr(kValueScale, 1));
  for (LayerSpec& layer : stack.layers) layer.sublayers.front().residual_scale = scale;
  return model;
}

constexpr std::string_view kClasses[] = {"MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"};
constexpr double kBase = 5e6;
constexpr double kWindowBase = 10000.0;
constexpr double kShare = 0.334;
constexpr int64_t kPattern = 6;  // every sixth layer sees all positions, and the first one

constexpr HfTensor Named(HfTensor tensor, std::string_view hf_name) {
  tensor.hf_name = hf_name;
  return tensor;
}

constexpr HfTensor kSinks = {.hf_name = "model.layers.{}.self_attn.sinks",
                             .gguf_name = "blk.{}.attn_sinks.weight",
                             .rows = Extent::kHeads,
                             .presence = Presence::kOptional};

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention,
         std::array{HfMatrix("model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight",
                             Extent::kQRows, Extent::kDim),
                    HfMatrix("model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight",
                             Extent::kKvRows, Extent::kDim),
                    HfMatrix("model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight",
                             Extent::kValueRows, Extent::kDim),
                    HfMatrix("model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight",
                             Extent::kDim, Extent::kLatentORows),
                    kSinks, Named(kSinks, "model.layers.{}.self_attn.attention_sink_bias")},
         kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts,
         kHfSelectionBias);

// Which layers have a window: by the keys of transformers, or by those of published folders.
Result<std::vector<bool>> ReadWindows(const JsonObject& config, int64_t layers) {
  constexpr const char* kHybrid = "hybrid_layer_pattern";
  if (config.Find("layer_types") != nullptr) return ReadWindowLayers(config, layers, 1);
  KVANT_ASSIGN(const auto hybrid, config.Numbers(kHybrid));
  if (hybrid && std::ssize(*hybrid) != layers) {
    return config.Wrong(kHybrid, fmt::format("an array of {} numbers", layers));
  }
  std::vector<bool> windows;
  for (int64_t i = 0; i < layers; ++i) {
    windows.push_back(hybrid ? (*hybrid)[static_cast<size_t>(i)] != 0
                             : i != 0 && (i + 1) % kPattern != 0);
  }
  return windows;
}

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const int64_t head_dim, config.Count("head_dim", kHeadDimMax));
  KVANT_ASSIGN(shape.v_dim, config.Count("v_head_dim", kHeadDimMax));
  KVANT_ASSIGN(const auto windows, ReadWindows(config, shape.layers));
  constexpr const char* kKvHeads = "swa_num_key_value_heads";
  KVANT_ASSIGN(const auto given, config.Integer(kKvHeads, kHeadsMax));
  const int64_t kv_heads = given.value_or(2 * shape.kv_heads);
  if (kv_heads < 1 || shape.heads % kv_heads != 0) {
    return config.Wrong(kKvHeads, fmt::format("a divisor of {}", shape.heads));
  }
  for (const bool window : windows) {
    shape.layer_sizes.push_back(
        {.head_dim = head_dim, .kv_heads = window ? kv_heads : shape.kv_heads, .ffn = shape.ffn});
  }
  return {};
}

// Heads of layers with a window differ in number only.
Status CheckSettings(const JsonObject& config, const HfShape& shape) {
  const std::pair<const char*, int64_t> expected[] = {{"swa_head_dim", shape.head_dim},
                                                      {"swa_v_head_dim", shape.v_dim},
                                                      {"swa_num_attention_heads", shape.heads}};
  for (const auto& [key, number] : expected) {
    KVANT_ASSIGN(const auto given, config.Integer(key, kDimMax));
    if (given.value_or(number) != number) return config.Wrong(key, fmt::format("{}", number));
  }
  KVANT_ASSIGN(const auto method, config.String("topk_method"));
  if (method.value_or("noaux_tc") != "noaux_tc") return config.Wrong("topk_method", "noaux_tc");
  KVANT_ASSIGN(const auto score, config.String("scoring_func"));
  if (score.value_or("sigmoid") != "sigmoid") return config.Wrong("scoring_func", "sigmoid");
  return RefuseTrue(config, "attention_bias");
}

// Published folders count the positions before the query's own.
Status AddWindows(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto windows, ReadWindows(config, shape.layers));
  KVANT_ASSIGN(const auto before, config.Integer("sliding_window_size", INT32_MAX - 1));
  KVANT_ASSIGN(const auto given, config.Integer("sliding_window", INT32_MAX));
  const int64_t window = before ? *before + 1 : given.value_or(0);
  if (window < 1) return config.Wrong("sliding_window", "at least 1");
  out.writer->AddU32(out.Key("attention.sliding_window"), static_cast<uint32_t>(window));
  out.writer->AddBools(out.Key("attention.sliding_window_pattern"), windows);
  KVANT_ASSIGN(const RopeSettings rope, RopeSettings::Read(config));
  KVANT_ASSIGN(const auto share, rope.Number("partial_rotary_factor"));
  return AddWindowRope(
      config, shape,
      {.base = kWindowBase, .base_key = "swa_rope_theta", .share = share.value_or(kShare)}, out);
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(CheckSettings(config, shape));
  KVANT_TRY(AddWindows(config, shape, out));
  out.writer->AddU32(out.Key("attention.key_length"), static_cast<uint32_t>(shape.head_dim));
  out.writer->AddU32(out.Key("attention.value_length"), static_cast<uint32_t>(shape.v_dim));
  const formats::Json* scale = config.Find("attention_value_scale");
  if (scale != nullptr && !scale->is_null()) {
    KVANT_TRY(AddPositive(config, "attention_value_scale", kValueScale, out));
  }
  KVANT_ASSIGN(const int64_t dense, CountLeadingDense(config, shape.layers, 1));
  AddSigmoidGating(dense, out);
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kNormalized, out));
  KVANT_TRY(AddExpertGroups(config, out));
  KVANT_ASSIGN(const int64_t n_rot, AddPartialRotation(config, shape, out));
  return AddRopeScaling(config, shape, n_rot, out);
}

// Folders call the epsilon of the norms by one of two names.
bool HasOlderEpsilon(const JsonObject& config) {
  return config.Find("layernorm_epsilon") != nullptr;
}

constexpr HfFamily RowFor(bool (*is_of)(const JsonObject&), const HfEpsilon& epsilon) {
  return {.classes = kClasses,
          .arch = kName,
          .is_of = is_of,
          .activation = kSiluActivation,
          .epsilon = epsilon,
          .finish_shape = FinishShape,
          .rope_base = kBase,
          .rope_share = kShare,
          .window_ropes = true,
          .tensors = kTensors,
          .add_parameters = AddParameters,
          .experts = {.count = "n_routed_experts"}};
}

constexpr HfFamily kHf[] = {RowFor(HasOlderEpsilon, {.key = "layernorm_epsilon"}),
                            RowFor(nullptr, {})};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "MiMo V2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::mimo2
