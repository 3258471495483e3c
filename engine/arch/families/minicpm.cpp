// MiniCPM 1, 2 and 4: the Llama layer with a factor each on the embedding, on what sublayers add
// and on logits. transformers rotates pairs of half-heads, so the conversion interleaves the rows
// of q and k.
#include <cmath>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::minicpm {
namespace {

constexpr std::string_view kName = "minicpm";

// The settings of the released models, for files without the keys.
constexpr float kEmbeddingScale = 12.0f;
constexpr float kDepthScale = 1.4f;
constexpr float kBaseDim = 256.0f;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
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

constexpr std::string_view kClasses[] = {"MiniCPMForCausalLM"};

constexpr auto kTensors =
    WithPairsInterleaved(Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                              kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown));

Result<double> Setting(const JsonObject& config, std::string_view key) {
  KVANT_ASSIGN(const auto value, config.Number(key));
  if (!value || !(*value > 0)) return config.Wrong(key, "a positive number");
  return *value;
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddPositive(config, "scale_emb", "embedding_scale", out));
  KVANT_ASSIGN(const double depth, Setting(config, "scale_depth"));
  out.writer->AddF32(out.Key("residual_scale"),
                     static_cast<float>(depth / std::sqrt(static_cast<double>(shape.layers))));
  KVANT_ASSIGN(const double base_dim, Setting(config, "dim_model_base"));
  out.writer->AddF32(out.Key("logit_scale"),
                     static_cast<float>(static_cast<double>(shape.dim) / base_dim));
  KVANT_ASSIGN(const auto scaling, ReadRopeScaling(config));
  if (scaling && scaling->type == "longrope") {
    out.writer->AddString(out.Key("rope.scaling.type"), "longrope");
    return AddLongRope(config, shape, shape.head_dim, out);
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
const Family kFamily = {.name = kName, .models = "MiniCPM 1, 2 and 4", .read = Read, .hf = kHf};

}  // namespace kvant::arch::minicpm
