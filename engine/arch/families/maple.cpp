// Maple: the Llama layer with norms of queries and keys, a window in three of four layers, which
// alone have a rotary embedding, and in every layer experts whose gates and ups are clamped.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::maple {
namespace {

constexpr std::string_view kName = "maple";
constexpr int64_t kPattern = 4;  // every fourth layer sees all positions

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  for (Attention& attention : attentions) attention.head_norms = HeadNorms::kRequired;
  KVANT_ASSIGN(const auto windows,
               metadata.FlagPerLayer("attention.sliding_window_pattern", attentions.size()));
  if (!windows.has_value()) return metadata.Missing("attention.sliding_window_pattern");
  KVANT_TRY(KeepWindows(metadata, *windows, attentions));
  KVANT_TRY(ReadWindowRopes(metadata, *windows, attentions, model.ropes));
  RotateOnly(*windows, attentions);
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions,
                                  {.normalize = true, .limits = ExpertLimits::kBeforeActivation}));
  return model;
}

constexpr std::string_view kClasses[] = {"MapleForCausalLM"};
constexpr float kLimit = 7.0f;  // of gates and ups, by the definition

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms,
                               kHfAttentionOutput, kHfNormBeforeFfn, kHfExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseNumber(config, "num_shared_experts"));
  KVANT_ASSIGN(const auto normalized, config.Bool("norm_topk_prob"));
  if (!normalized.value_or(true)) return config.Wrong("norm_topk_prob", "true");
  KVANT_ASSIGN(const auto unrotated, config.Bool("nope_on_global_attention"));
  if (!unrotated.value_or(false)) return config.Wrong("nope_on_global_attention", "true");
  KVANT_ASSIGN(const auto windows, ReadWindowLayers(config, shape.layers, kPattern));
  KVANT_TRY(AddWindowFlags(config, windows, out));
  out.writer->AddF32s(out.Key(kExpertLimitKey),
                      std::vector<float>(static_cast<size_t>(shape.layers), kLimit));
  KVANT_TRY(AddPartialRotation(config, shape, out));
  return RefuseRopeScaling(config);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .keys = {.ffn = ""},
    .rope_share = 1,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Maple", .read = Read, .hf = kHf};

}  // namespace kvant::arch::maple
