// StableLM: the Llama layer with layer norms and a rotary embedding over a part of each head. In
// some models attention and feed-forward stand beside each other and read one norm.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::stablelm {
namespace {

constexpr std::string_view kName = "stablelm";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  for (Attention& attention : attentions) {
    attention.head_norm_weights = HeadNormWeights::kPerHead;
    attention.head_norm_kind = NormKind::kLayer;
  }
  // The norm tells. llama.cpp's converter writes true for folders that say nothing.
  constexpr const char* kNorm = "blk.0.ffn_norm.weight";
  const bool parallel = metadata.file().FindTensor(kNorm) == nullptr;
  KVANT_ASSIGN(const auto said, metadata.file().GetBool(metadata.Key("use_parallel_residual")));
  if (parallel && said == false) {
    return MakeError(ErrorCode::kCorrupt, "{}: tensor {} is missing, but key {} is false",
                     metadata.file().path(), kNorm, metadata.Key("use_parallel_residual"));
  }
  FillLayers(stack, {.before_ffn = parallel ? "attn_norm" : "ffn_norm"}, attentions, ffns);
  for (LayerSpec& layer : stack.layers) {
    layer.flow = parallel ? Flow::kParallel : Flow::kSequential;
  }
  return model;
}

constexpr std::string_view kClasses[] = {"StableLmForCausalLM"};

// A tensor for each head.
constexpr HfTensor NormOfHeads(std::string_view hf_name, std::string_view gguf_name, Extent heads) {
  return {.hf_name = hf_name,
          .gguf_name = gguf_name,
          .rows = heads,
          .columns = Extent::kHeadDim,
          .presence = Presence::kOptional,
          .experts = ExpertForm::kEachRow};
}

constexpr std::array<HfTensor, 2> kHeadNorms = {
    NormOfHeads("model.layers.{}.self_attn.q_layernorm.norms.{}.weight",
                "blk.{}.attn_q_norm.weight", Extent::kHeads),
    NormOfHeads("model.layers.{}.self_attn.k_layernorm.norms.{}.weight",
                "blk.{}.attn_k_norm.weight", Extent::kKvHeads),
};

constexpr auto kTensors =
    Join(kHfEnds, kHfFinalNormBias, kHfNormBeforeAttention, kHfNormBeforeAttentionBias,
         kHfSeparateQkv, kHeadNorms, kHfAttentionOutput,
         HfOptional("model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight",
                    Extent::kDim),
         kHfNormBeforeFfnBias, kHfSeparateGateUp, kHfDown);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto parallel, config.Bool("use_parallel_residual"));
  out.writer->AddBool(out.Key("use_parallel_residual"), parallel.value_or(false));
  KVANT_ASSIGN(const int64_t n_rot, AddPartialRotation(config, shape, out));
  return AddRopeScaling(config, shape, n_rot, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .epsilon = kLayerNormEpsilon,
    .rope_share = 0.25,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "StableLM", .read = Read, .hf = kHf};

}  // namespace kvant::arch::stablelm
