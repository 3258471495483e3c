// EXAONE 4: norms after both sublayers and none before them, norms of queries and keys. The large
// model has a window in three of four layers, which alone have a rotary embedding.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::exaone4 {
namespace {

constexpr std::string_view kName = "exaone4";
constexpr uint32_t kPattern = 4;  // every fourth layer sees all positions

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  const bool has_window = metadata.Has("attention.sliding_window");
  KVANT_ASSIGN(const auto windows, ReadWindowPattern(metadata, attentions.size(), kPattern));
  for (size_t i = 0; i < attentions.size(); ++i) {
    attentions[i].head_norms = HeadNorms::kRequired;
    if (!has_window || windows[i]) continue;
    attentions[i].mask = {};
    attentions[i].rope = Attention::kNoRope;
  }
  FillLayers(stack, kNormsAfter, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"Exaone4ForCausalLM"};

constexpr auto kTensors = Join(
    kHfEnds, kHfSeparateQkv, kHfHeadNorms, kHfAttentionOutput,
    HfNorm("model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"),
    kHfSeparateGateUp, kHfDown, kHfNormAfterFfn);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  if (config.Find("sliding_window") != nullptr) {
    KVANT_TRY(AddAlternatingWindow(config, shape, kPattern, out));
  }
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
const Family kFamily = {.name = kName, .models = "EXAONE 4", .read = Read, .hf = kHf};

}  // namespace kvant::arch::exaone4
