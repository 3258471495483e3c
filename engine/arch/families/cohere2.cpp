// Command R7B and Command A: Command R's layer, with a window in three of four layers, which alone
// have a rotary embedding.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::cohere2 {
namespace {

constexpr std::string_view kName = "cohere2";
constexpr uint32_t kPattern = 4;  // every fourth layer sees all positions

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  KVANT_ASSIGN(const auto windows, ReadWindowPattern(metadata, attentions.size(), kPattern));
  for (size_t i = 0; i < attentions.size(); ++i) {
    if (windows[i]) continue;
    attentions[i].mask = {};
    attentions[i].rope = Attention::kNoRope;
  }
  KVANT_ASSIGN(stack.output.scale, metadata.Positive("logit_scale"));
  FillLayers(stack, {.before_ffn = "attn_norm"}, attentions, ffns);
  for (LayerSpec& layer : stack.layers) layer.flow = Flow::kParallel;
  return model;
}

constexpr std::string_view kClasses[] = {"Cohere2ForCausalLM"};

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                               kHfSeparateGateUp, kHfDown);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddPositive(config, "logit_scale", "logit_scale", out));
  KVANT_TRY(AddAlternatingWindow(config, shape, kPattern, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .epsilon = kLayerNormEpsilon,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Command R7B, Command A", .read = Read, .hf = kHf};

}  // namespace kvant::arch::cohere2
