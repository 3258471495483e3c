// Command R: attention and feed-forward beside each other, which read one layer norm without a
// bias; norms of queries and keys with weights of their own for each head in the larger model, and
// a factor on logits. Both transformers and the file rotate neighbouring pairs.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::command_r {
namespace {

constexpr std::string_view kName = "command-r";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  for (Attention& attention : attentions) {
    attention.head_norm_weights = HeadNormWeights::kPerHead;
    attention.head_norm_kind = NormKind::kLayer;
  }
  KVANT_ASSIGN(stack.output.scale, metadata.PositiveOr("logit_scale", 1));
  FillLayers(stack, {.before_ffn = "attn_norm"}, attentions, ffns);
  for (LayerSpec& layer : stack.layers) layer.flow = Flow::kParallel;
  return model;
}

constexpr std::string_view kClasses[] = {"CohereForCausalLM"};

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
         HfOptional("model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight",
                    Extent::kHeads, Extent::kHeadDim),
         HfOptional("model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight",
                    Extent::kKvHeads, Extent::kHeadDim),
         kHfSeparateGateUp, kHfDown);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddPositive(config, "logit_scale", "logit_scale", out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .epsilon = kLayerNormEpsilon,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Command R, Aya 23", .read = Read, .hf = kHf};

}  // namespace kvant::arch::command_r
