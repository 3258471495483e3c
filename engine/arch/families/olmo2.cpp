// OLMo 2 and 3: norms after both sublayers and none before them, and norms of queries and keys over
// the whole projection. OLMo 3 has a window in three of four layers; layers with a window do
// without the scaling of positions.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::olmo2 {
namespace {

constexpr std::string_view kName = "olmo2";
constexpr uint32_t kPattern = 4;  // every fourth layer sees all positions
constexpr const char* kWindowBaseKey = "rope.freq_base_swa";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  for (Attention& attention : attentions) {
    attention.head_norms = HeadNorms::kRequired;
    attention.head_norm_weights = HeadNormWeights::kProjection;
  }
  if (metadata.Has("attention.sliding_window")) {
    KVANT_ASSIGN(const auto windows, ReadWindowPattern(metadata, attentions.size(), kPattern));
    for (size_t i = 0; i < attentions.size(); ++i) {
      if (!windows[i]) attentions[i].mask = {};
    }
    const float main_base = model.ropes.front().base;
    KVANT_ASSIGN(const float base, metadata.PositiveOr(kWindowBaseKey, main_base));
    GiveLayersTheBase(base, windows, attentions, model.ropes);
  }
  FillLayers(stack, kNormsAfter, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"Olmo2ForCausalLM", "Olmo3ForCausalLM"};

constexpr auto kTensors = Join(
    kHfEnds, kHfSeparateQkv,
    HfNorm("model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", Extent::kQRows),
    HfNorm("model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", Extent::kKvRows),
    kHfAttentionOutput,
    HfNorm("model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"),
    kHfSeparateGateUp, kHfDown, kHfNormAfterFfn);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  if (config.Find("sliding_window") != nullptr) {
    KVANT_TRY(AddAlternatingWindow(config, shape, kPattern, out));
    KVANT_ASSIGN(const float main_base, ReadRopeBase(config, out.rope_base));
    KVANT_ASSIGN(const float base,
                 ReadWindowRopeBase(config, "rope_theta", static_cast<double>(main_base)));
    if (base != main_base) out.writer->AddF32(out.Key(kWindowBaseKey), base);
  }
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .window_ropes = true,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "OLMo 2 and 3", .read = Read, .hf = kHf};

}  // namespace kvant::arch::olmo2
