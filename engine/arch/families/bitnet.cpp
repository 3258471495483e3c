// BitNet b1.58: the Llama layer with rotary embedding over halves, and with norms of what the
// attention and the gates give before the last matrix of each multiplies it. The released 2B model
// squares positive gates, earlier ones have SiLU; files of other engines do not say which.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/hidden_activation.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::bitnet {
namespace {

constexpr std::string_view kName = "bitnet";
constexpr const char* kActivationKey = "hidden_activation";

// Models with the vocabulary of Llama 3 square their gates.
constexpr uint64_t kVocabOfSquares = 128256;

cpu::Activation UsualActivation(const Metadata& metadata) {
  const formats::GgufTensor* embedding = metadata.file().FindTensor(kEmbeddingName);
  const bool squares =
      embedding != nullptr && static_cast<uint64_t>(embedding->dims[1]) == kVocabOfSquares;
  return squares ? cpu::Activation::kReluSquared : cpu::Activation::kSilu;
}

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto activation,
               ReadHiddenActivation(metadata, UsualActivation(metadata), kActivationKey));
  KVANT_ASSIGN(auto ffns, ReadGatedFfns(metadata, stack, activation));
  const float epsilon = stack.final_norm.epsilon;
  for (Attention& attention : attentions) {
    attention.result_norm = Norm{NormKind::kRms, "attn_sub_norm", epsilon};
  }
  for (GatedFfn& ffn : ffns) ffn.product_norm = Norm{NormKind::kRms, "ffn_sub_norm", epsilon};
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"BitNetForCausalLM"};
constexpr std::string_view kActivations[] = {"relu2", "silu"};
constexpr double kBase = 500000.0;

constexpr auto kTensors = Join(
    kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv,
    HfNorm("model.layers.{}.self_attn.attn_sub_norm.weight", "blk.{}.attn_sub_norm.weight",
           Extent::kQRows),
    kHfAttentionOutput, kHfNormBeforeFfn, kHfSeparateGateUp,
    HfNorm("model.layers.{}.mlp.ffn_sub_norm.weight", "blk.{}.ffn_sub_norm.weight", Extent::kFfn),
    kHfDown);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto activation, config.String("hidden_act"));
  out.writer->AddString(out.Key(kActivationKey), activation.value_or("relu2"));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "hidden_act", .names = kActivations},
    .rope_base = kBase,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "BitNet", .read = Read, .hf = kHf};

}  // namespace kvant::arch::bitnet
