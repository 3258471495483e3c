// gpt-oss: biases everywhere, a sink in every head's softmax, alternating windows, and in every
// layer experts with clamped gates, whose weights are a softmax over the chosen experts. YaRN's
// ramp lies between pairs.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::gpt_oss {
namespace {

constexpr std::string_view kName = "gpt-oss";
constexpr uint32_t kPattern = 2;  // every second layer sees all positions

// The norm before the feed-forward has the name that other families give to one after the
// attention.
constexpr LayerNorms kNorms = {.before_ffn = "post_attention_norm"};

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(
      ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes, YarnRamp::kExact));
  if (!metadata.Has("attention.sliding_window")) {
    return metadata.Missing("attention.sliding_window");
  }
  KVANT_ASSIGN(const auto windows, ReadWindowPattern(metadata, attentions.size(), kPattern));
  for (size_t i = 0; i < attentions.size(); ++i) {
    if (!windows[i]) attentions[i].mask = {};
    attentions[i].sinks = Sinks::kRequired;
  }
  KVANT_TRY(FillLayersWithExperts(
      metadata, stack, kNorms, attentions,
      {.gating = graph::Gating::kSoftmaxOfChosen, .activation = cpu::Activation::kSwigluClamped}));
  return model;
}

constexpr std::string_view kClasses[] = {"GptOssForCausalLM"};
constexpr double kBase = 150000.0;
constexpr double kGateLimit = 7.0;  // of cpu::Activation::kSwigluClamped

// Gate and up take turns in the columns of one tensor.
constexpr HfTensor OfExperts(std::string_view hf_name, std::string_view gguf_name, Extent rows,
                             Extent columns, RowPart part) {
  HfTensor tensor =
      HfOfExperts(hf_name, gguf_name, rows, columns, ExpertForm::kStackedOrMxfp4, part);
  tensor.order = RowOrder::kTransposed;
  return tensor;
}

constexpr HfTensor OfExperts(std::string_view hf_name, std::string_view gguf_name, Extent size,
                             RowPart part) {
  return HfOfExperts(hf_name, gguf_name, size, Extent::kNone, ExpertForm::kStacked, part);
}

constexpr std::array<HfTensor, 8> kExperts = {
    HfOfExperts("model.layers.{}.mlp.router.weight", kRouterName, Extent::kExperts, Extent::kDim),
    HfOfExperts("model.layers.{}.mlp.router.bias", "blk.{}.ffn_gate_inp.bias", Extent::kExperts,
                Extent::kNone),
    OfExperts("model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight",
              Extent::kExpertFfn, Extent::kDim, RowPart::kEvenRows),
    OfExperts("model.layers.{}.mlp.experts.gate_up_proj_bias", "blk.{}.ffn_gate_exps.bias",
              Extent::kExpertFfn, RowPart::kEvenRows),
    OfExperts("model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_up_exps.weight",
              Extent::kExpertFfn, Extent::kDim, RowPart::kOddRows),
    OfExperts("model.layers.{}.mlp.experts.gate_up_proj_bias", "blk.{}.ffn_up_exps.bias",
              Extent::kExpertFfn, RowPart::kOddRows),
    OfExperts("model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight", Extent::kDim,
              Extent::kExpertFfn, RowPart::kAll),
    OfExperts("model.layers.{}.mlp.experts.down_proj_bias", "blk.{}.ffn_down_exps.bias",
              Extent::kDim, RowPart::kAll),
};

constexpr auto kTensors = Join(
    kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
    HfNorm("model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight", Extent::kHeads),
    HfNorm("model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"),
    kExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto limit, config.Number("swiglu_limit"));
  if (limit.value_or(kGateLimit) != kGateLimit) {
    return config.Wrong("swiglu_limit", fmt::format("{}", kGateLimit));
  }
  KVANT_TRY(AddAlternatingWindow(config, shape, kPattern, out));
  return AddRopeScaling(config, shape, shape.head_dim, out, {.ramp = YarnRamp::kExact});
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_base = kBase,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_local_experts", .ffn = "intermediate_size"},
    .quantization = "mxfp4",
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "gpt-oss", .read = Read, .hf = kHf};

}  // namespace kvant::arch::gpt_oss
