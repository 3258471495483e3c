// Kolibri 1: norms on both sides of the sublayers and of queries and keys, a window in most layers,
// which alone have a rotary embedding, and experts that are chosen by a router's logits and a bias
// and weighed by a sigmoid of the logits, besides a shared expert.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::kolibri1 {
namespace {

constexpr std::string_view kName = "kolibri1";
constexpr uint32_t kPattern = 5;  // every fifth layer sees all positions

constexpr LayerNorms kNorms = {.after_attention = "post_attention_norm",
                               .after_ffn = "post_ffw_norm"};

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  for (Attention& attention : attentions) attention.head_norms = HeadNorms::kRequired;
  if (metadata.Has("attention.sliding_window")) {
    KVANT_ASSIGN(const auto windows, ReadWindowPattern(metadata, attentions.size(), kPattern));
    KVANT_TRY(KeepWindows(metadata, windows, attentions));
    RotateOnly(windows, attentions);
  }
  KVANT_TRY(FillLayersWithExperts(
      metadata, stack, kNorms, attentions,
      {.gating = graph::Gating::kSigmoid, .shared = SharedExpert::kPlain, .by_logits = true}));
  return model;
}

constexpr std::string_view kClasses[] = {"Kolibri1ForCausalLM"};

constexpr HfTensor RouterBias(std::string_view hf_name) {
  return HfOfExperts(hf_name, "blk.{}.exp_probs_b.bias", Extent::kExperts, Extent::kNone);
}

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms, kHfAttentionOutput,
         HfNorm("model.layers.{}.post_attn_norm.weight", "blk.{}.post_attention_norm.weight"),
         kHfNormBeforeFfn, kHfExperts,
         std::array{RouterBias("model.layers.{}.moe.router.expert_bias")}, kHfSharedExperts,
         HfNorm("model.layers.{}.post_ffn_norm.weight", "blk.{}.post_ffw_norm.weight"));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto windows, ReadWindowLayers(config, shape.layers, kPattern));
  KVANT_TRY(AddWindowFlags(config, windows, out));
  AddSigmoidGating(0, out);
  out.writer->AddU32(out.Key("expert_shared_count"), 1);
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kAsTheyAre, ExpertWeights::kNormalized, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .keys = {.ffn = "moe_intermediate_size"},
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts", .shared_ffn = "shared_expert_intermediate_size"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Kolibri 1", .read = Read, .hf = kHf};

}  // namespace kvant::arch::kolibri1
