// Qwen 3.5 and 3.6, the dense models: the mixers of Qwen3-Next, whose value heads take turns with
// the key heads, and gated feed-forwards.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/decoder.h"
#include "engine/arch/delta_mixers.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch::qwen35 {
namespace {

constexpr std::string_view kName = "qwen35";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(const auto mixers,
               ReadDeltaMixers(metadata, stack, ValueHeads::kTiled, model.ropes));
  KVANT_ASSIGN(const auto gated, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {.before_ffn = "post_attention_norm"}, mixers,
             std::vector<Block>(gated.begin(), gated.end()));
  return model;
}

constexpr std::string_view kClasses[] = {"Qwen3_5ForCausalLM"};

constexpr auto kTensors = Join(kHfAroundDelta, InOtherLayers(Join(kHfTiledDelta, kHfDeltaNorm)),
                               kHfSeparateGateUp, kHfDown);

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .finish_shape = ReadDeltaLayers,
    .rope_share = kDeltaRopeShare,
    .tensors = kTensors,
    .add_parameters = AddSectionedDelta,
    .keeps_predictors = true,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Qwen 3.5 and 3.6", .read = Read, .hf = kHf};

}  // namespace kvant::arch::qwen35
