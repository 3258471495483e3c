// MiniCPM3: the layer of MiniCPM, with its factors on the embedding, on what sublayers add and on
// logits, around latent attention; rotary embedding over halves, stretched by LongRoPE.
#include <cmath>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_latent.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"

namespace kvant::arch::minicpm3 {
namespace {

constexpr std::string_view kName = "minicpm3";

// The settings of the released models, for files without the keys; other engines know no keys.
constexpr float kEmbeddingScale = 12.0f;
constexpr float kDepthScale = 1.4f;
constexpr float kBaseDim = 256.0f;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(const auto attentions,
               ReadLatentAttentions(metadata, stack, cpu::RopeStyle::kHalves, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {}, attentions, ffns);
  const auto layers = static_cast<float>(stack.layers.size());
  KVANT_TRY(ReadStreamScales(metadata,
                             {.embedding = kEmbeddingScale,
                              .residual = kDepthScale / std::sqrt(layers),
                              .logit_divisor = static_cast<float>(stack.dim) / kBaseDim},
                             stack));
  return model;
}

constexpr std::string_view kClasses[] = {"MiniCPM3ForCausalLM"};

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfLatentProjections,
                               kHfLatentKvTogether, kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  AddLatentSizes(shape, HfLatentKv::kTogether, out);
  KVANT_TRY(AddPositive(config, "scale_emb", "embedding_scale", out));
  KVANT_ASSIGN(const auto depth, config.Number("scale_depth"));
  if (!depth || !(*depth > 0)) return config.Wrong("scale_depth", "a positive number");
  out.writer->AddF32(out.Key("residual_scale"),
                     static_cast<float>(*depth / std::sqrt(static_cast<double>(shape.layers))));
  KVANT_ASSIGN(const auto base, config.Number("dim_model_base"));
  if (!base || !(*base > 0)) return config.Wrong("dim_model_base", "a positive number");
  out.writer->AddF32(out.Key("logit_scale"),
                     static_cast<float>(static_cast<double>(shape.dim) / *base));
  return AddLongRope(config, shape, shape.rope, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .finish_shape = FinishLatentShape,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "MiniCPM3", .read = Read, .hf = kHf};

}  // namespace kvant::arch::minicpm3
