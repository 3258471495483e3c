// Phi-3 and Phi-3.5: the Llama layer with rotary embedding over halves and a sliding window in
// every layer; files hold qkv and gate/up as one matrix each. The long-context models divide their
// frequencies by one of two lists of factors, which the conversion writes as tensors.
#include <cmath>

#include "base/result.h"
#include "cpu/kernels.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::phi3 {
namespace {

constexpr std::string_view kName = "phi3";

// Files from before the window was stored are known by their shape: the 4k models use 2047
// positions, the 128k models their whole context. Source: the models' config.json
// ("sliding_window") at the time of their release.
constexpr int64_t kWindow4k = 2047;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  const bool released_shape = attentions.size() == 32 || attentions.size() == 40;
  if (!metadata.Has("attention.sliding_window") && released_shape && model.context_train == 4096) {
    for (Attention& attention : attentions) attention.mask = {MaskKind::kWindow, kWindow4k};
  }
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"Phi3ForCausalLM"};

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfFusedQkv, kHfAttentionOutput,
                               kHfNormBeforeFfn, kHfFusedGateUp, kHfDown);

// The factor on cosine and sine that goes with the longer context. Source: LongRoPE
// (arXiv 2402.13753) as in the Phi-3 model definition.
float AttentionFactor(int64_t context, int64_t original) {
  const double stretch = static_cast<double>(context) / static_cast<double>(original);
  if (stretch <= 1.0) return 1.0f;
  return static_cast<float>(
      std::sqrt(1.0 + std::log(stretch) / std::log(static_cast<double>(original))));
}

Status AddFactors(const JsonObject& settings, const char* key, const char* tensor, int64_t n_rot,
                  Parameters& out) {
  KVANT_ASSIGN(auto factors, settings.Numbers(key));
  if (!factors || static_cast<int64_t>(factors->size()) != n_rot / 2) {
    return settings.Wrong(key, fmt::format("{} numbers", n_rot / 2));
  }
  out.tensors.push_back({tensor, std::move(*factors)});
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto rotated, config.Number("partial_rotary_factor"));
  const double share = rotated.value_or(1.0);
  if (!(share > 0 && share <= 1)) return config.Wrong("partial_rotary_factor", "0 to 1");
  const auto n_rot = static_cast<int64_t>(share * static_cast<double>(shape.head_dim));
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(n_rot));

  // 0 says that there is no window; without the key, readers guess one from the model's size.
  KVANT_ASSIGN(const auto window, config.Integer("sliding_window", INT32_MAX));
  out.writer->AddU32(out.Key("attention.sliding_window"),
                     static_cast<uint32_t>(window.value_or(0)));

  KVANT_ASSIGN(const auto scaling, ReadRopeScaling(config));
  constexpr const char* kOriginal = "original_max_position_embeddings";
  KVANT_ASSIGN(auto original, config.Integer(kOriginal, INT32_MAX));
  if (!original && scaling) {
    KVANT_ASSIGN(original, scaling->settings.Integer(kOriginal, INT32_MAX));
  }
  const int64_t original_context = original.value_or(shape.context);
  if (original_context < 2) return config.Wrong(kOriginal, "a number of positions");
  out.writer->AddU32(out.Key("rope.scaling.original_context_length"),
                     static_cast<uint32_t>(original_context));
  if (!scaling) return {};
  // "su" is the name that the first release of the long-context models used.
  if (scaling->type != "longrope" && scaling->type != "su") {
    return scaling->Unsupported("default, longrope, su");
  }
  out.writer->AddF32(out.Key("rope.scaling.attn_factor"),
                     AttentionFactor(shape.context, original_context));
  KVANT_TRY(AddFactors(scaling->settings, "long_factor", "rope_factors_long.weight", n_rot, out));
  return AddFactors(scaling->settings, "short_factor", "rope_factors_short.weight", n_rot, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Phi-3", .read = Read, .hf = kHf};

}  // namespace kvant::arch::phi3
