// SmolLM 3: the Llama layer, without a rotary embedding in every fourth layer. transformers rotates
// pairs of half-heads, so the conversion interleaves the rows of q and k.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::smollm3 {
namespace {

constexpr std::string_view kName = "smollm3";
constexpr double kRopeBase = 2000000.0;
constexpr size_t kPattern = 4;  // layers without a rotary embedding

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  for (size_t i = 0; i < attentions.size(); ++i) {
    if ((i + 1) % kPattern == 0) attentions[i].rope = Attention::kNoRope;
  }
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"SmolLM3ForCausalLM"};

constexpr auto kTensors =
    WithPairsInterleaved(Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                              kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseTrue(config, "use_sliding_window"));
  KVANT_ASSIGN(const auto turned, config.Numbers("no_rope_layers"));
  for (size_t i = 0; turned && i < turned->size(); ++i) {
    if (((*turned)[i] == 0) != ((i + 1) % kPattern == 0)) {
      return MakeError(ErrorCode::kNotSupported, "{}: expected 0 for every {}th layer only",
                       config.Where("no_rope_layers"), kPattern);
    }
  }
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_base = kRopeBase,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "SmolLM 3", .read = Read, .hf = kHf};

}  // namespace kvant::arch::smollm3
