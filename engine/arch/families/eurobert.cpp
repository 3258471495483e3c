// EuroBERT (arXiv 2503.05500): the Llama layer, whose positions see each other.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"
#include "engine/arch/text_encoder.h"

namespace kvant::arch::eurobert {
namespace {

constexpr std::string_view kName = "eurobert";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadTextEncoder(metadata, NormKind::kRms));
  Stack& stack = *model.embedder;
  KVANT_ASSIGN(auto attentions, ReadBothSided(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr auto kTensors =
    Join(HfEmbedding("model.embed_tokens.weight"),
         HfNorm("model.norm.weight", "output_norm.weight"), kHfNormBeforeAttention, kHfSeparateQkv,
         kHfAttentionOutput, kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddHfEncoder(config, shape, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr std::string_view kClasses[] = {"EuroBertModel", "EuroBertForMaskedLM"};
constexpr std::string_view kHeads[] = {"lm_head."};
constexpr double kBase = 250000.0;

constexpr HfFamily kHf[] = {{.classes = kClasses,
                             .arch = kName,
                             .activation = kSiluActivation,
                             .optional_prefix = "model.",
                             .rope_base = kBase,
                             .tensors = kTensors,
                             .add_parameters = AddParameters,
                             .left_out = kHeads,
                             .is_encoder = true}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "EuroBERT", .read = Read, .hf = kHf};

}  // namespace kvant::arch::eurobert
