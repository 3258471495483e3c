// Hunyuan, the dense models: the Llama layer with rotary embedding over halves, and norms of
// queries and keys after it. The base of the embedding follows from a factor in config.json.
#include <cmath>

#include "base/result.h"
#include "cpu/kernels.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::hunyuan_dense {
namespace {

constexpr std::string_view kName = "hunyuan-dense";
constexpr double kRopeBase = 10000.0;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  for (Attention& attention : attentions) {
    attention.head_norms = HeadNorms::kRequired;
    attention.head_norm_order = graph::NormOrder::kAfterRope;
  }
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"HunYuanDenseV1ForCausalLM"};

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv,
                               HfNorm("model.layers.{}.self_attn.query_layernorm.weight",
                                      "blk.{}.attn_q_norm.weight", Extent::kHeadDim),
                               HfNorm("model.layers.{}.self_attn.key_layernorm.weight",
                                      "blk.{}.attn_k_norm.weight", Extent::kHeadDim),
                               kHfAttentionOutput, kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown);

// The base alpha^(d / (d - 2)) times larger turns the slowest of the d / 2 pairs alpha times
// slower. Source: the model's definition in transformers.
Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const float given, ReadRopeBase(config, kRopeBase));
  double base = static_cast<double>(given);
  KVANT_ASSIGN(const auto scaling, ReadRopeScaling(config));
  if (scaling) {
    if (scaling->type != "dynamic") return scaling->Unsupported("default, dynamic with alpha");
    KVANT_ASSIGN(const auto alpha, scaling->settings.Number("alpha"));
    if (!alpha || !(*alpha > 0)) return scaling->settings.Wrong("alpha", "a positive number");
    const auto dims = static_cast<double>(shape.head_dim);
    base *= std::pow(*alpha, dims / (dims - 2.0));
  }
  out.writer->AddF32(out.Key("rope.freq_base"), static_cast<float>(base));
  return {};
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_base = 0,  // AddParameters writes it
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {
    .name = kName, .models = "Hunyuan, the dense models", .read = Read, .hf = kHf};

}  // namespace kvant::arch::hunyuan_dense
