// EmbeddingGemma (arXiv 2509.20354): the layers of Gemma 3 (families/gemma3.cpp), whose positions
// see those on both sides, in layers with a window half of it on either side. Vectors go through
// two matrices behind the pooling.
#include <cmath>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"
#include "engine/arch/text_encoder.h"

namespace kvant::arch::gemma_embedding {
namespace {

constexpr std::string_view kName = "gemma-embedding";

constexpr uint32_t kPattern = 6;  // every sixth layer sees all positions
constexpr float kLocalBase = 10000.0f;
constexpr int64_t kNoWidth = -1;  // no number of layers makes scores depend on the width

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadTextEncoder(metadata, NormKind::kRms));
  Stack& stack = *model.embedder;
  KVANT_ASSIGN(auto attentions, ReadBothSided(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kGeluTanh));
  KVANT_ASSIGN(const auto windows, ReadWindowPattern(metadata, attentions.size(), kPattern));
  KVANT_ASSIGN(const float local_base, metadata.PositiveOr("rope.freq_base_swa", kLocalBase));
  for (size_t i = 0; i < attentions.size(); ++i) {
    if (!windows[i]) attentions[i].mask.window = 0;
    attentions[i].head_norms = HeadNorms::kRequired;
  }
  GiveLayersTheBase(local_base, windows, attentions, model.ropes);
  stack.input.scale = std::sqrt(static_cast<float>(stack.dim));
  FillLayers(stack, {.after_attention = "post_attention_norm", .after_ffn = "post_ffw_norm"},
             attentions, ffns);
  return model;
}

constexpr auto kTensors = WithNormsPlusOne(Join(
    HfEmbedding("model.embed_tokens.weight"), HfNorm("model.norm.weight", "output_norm.weight"),
    kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms, kHfAttentionOutput,
    kHfNormsBetweenSublayers, kHfSeparateGateUp, kHfDown, kHfNormAfterFfn));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto both_sides, config.Bool("use_bidirectional_attention"));
  if (!both_sides.value_or(false)) {
    return config.Wrong("use_bidirectional_attention", "true for a Gemma 3 that makes vectors");
  }
  if (config.Find("head_dim") == nullptr) return config.Wrong("head_dim", "a number");
  KVANT_TRY(RefuseNumber(config, "attn_logit_softcapping"));
  KVANT_TRY(AddHfEncoder(config, shape, out));
  KVANT_TRY(AddAlternatingWindow(config, shape, kPattern, out));
  KVANT_TRY(AddQueryScale(config, shape, kNoWidth, out));
  KVANT_ASSIGN(const float local_base,
               ReadWindowRopeBase(config, "rope_local_base_freq", kLocalBase));
  out.writer->AddF32(out.Key("rope.freq_base_swa"), local_base);
  return AddLinearScalingIfAny(config, out);
}

constexpr std::string_view kClasses[] = {"Gemma3TextModel"};

constexpr HfFamily kHf[] = {{.classes = kClasses,
                             .arch = kName,
                             .activation = kGeluActivation,
                             .optional_prefix = "model.",
                             .rope_base = 1000000.0,
                             .window_ropes = true,
                             .tensors = kTensors,
                             .add_parameters = AddParameters,
                             .is_encoder = true}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "EmbeddingGemma", .read = Read, .hf = kHf};

}  // namespace kvant::arch::gemma_embedding
