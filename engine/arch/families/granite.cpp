// Granite 3, the dense models: the Llama layer with a factor each on the embedding, on what
// sublayers add, on the scores of attention and on logits. transformers rotates pairs of
// half-heads, so the conversion interleaves the rows of q and k.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::granite {
namespace {

constexpr std::string_view kName = "granite";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_ASSIGN(const bool turned, ReadHasRope(metadata));
  if (turned) {
    KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  }
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {}, attentions, ffns);
  KVANT_TRY(ReadStreamScales(metadata, {}, stack));
  return model;
}

constexpr std::string_view kClasses[] = {"GraniteForCausalLM"};

constexpr auto kTensors =
    WithPairsInterleaved(Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                              kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddMultipliers(config, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
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
const Family kFamily = {.name = kName, .models = "Granite 3", .read = Read, .hf = kHf};

}  // namespace kvant::arch::granite
