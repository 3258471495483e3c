// Phi-3 and Phi-3.5: the Llama layer with rotary embedding over halves and a sliding window in
// every layer; files hold qkv and gate/up as one matrix each. The long-context models divide their
// frequencies by one of two lists of factors, which the conversion writes as tensors.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
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

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const int64_t n_rot, AddPartialRotation(config, shape, out));

  // 0 says that there is no window; without the key, readers guess one from the model's size.
  KVANT_ASSIGN(const auto window, config.Integer("sliding_window", INT32_MAX));
  out.writer->AddU32(out.Key("attention.sliding_window"),
                     static_cast<uint32_t>(window.value_or(0)));

  return AddLongRope(config, shape, n_rot, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_share = 1,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Phi-3", .read = Read, .hf = kHf};

}  // namespace kvant::arch::phi3
