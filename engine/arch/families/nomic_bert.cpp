// Nomic BERT (arXiv 2402.01613): BERT with rotary positions instead of learned ones, and gated
// feed-forwards; its matrices have no biases.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder.h"
#include "engine/arch/hf/hf_nomic.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/text_encoder.h"

namespace kvant::arch::nomic_bert {
namespace {

constexpr std::string_view kName = "nomic-bert";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadBertEncoder(metadata));
  Stack& stack = *model.embedder;
  KVANT_ASSIGN(const auto attentions, ReadRotatedBothSided(metadata, model));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayersNormedAfter(stack, attentions, AsBlocks(ffns));
  return model;
}

constexpr auto kTensors =
    Join(HfNomicAttention(kHfNomicNames),
         std::array{HfMatrix("encoder.layers.{}.mlp.fc12.weight", "blk.{}.ffn_gate.weight",
                             Extent::kFfn, Extent::kDim),
                    HfMatrix("encoder.layers.{}.mlp.fc11.weight", "blk.{}.ffn_up.weight",
                             Extent::kFfn, Extent::kDim),
                    HfMatrix("encoder.layers.{}.mlp.fc2.weight", "blk.{}.ffn_down.weight",
                             Extent::kDim, Extent::kFfn)});

constexpr std::string_view kClasses[] = {"NomicBertModel", "NomicBertForPreTraining",
                                         "NomicBertForMaskedLM"};
constexpr std::string_view kPublishedNames[] = {"swiglu"};
constexpr double kLaterBase = 1000.0;

// The settings that the published folders have, and those that transformers 5 writes.
constexpr HfFamily Published() {
  HfFamily row = HfNomicFamily(kName, kClasses, kTensors);
  row.is_of = IsPublishedHfNomic;
  row.activation.names = kPublishedNames;
  return row;
}

constexpr HfFamily kHf[] = {Published(),
                            {.classes = kClasses,
                             .arch = kName,
                             .activation = kSiluActivation,
                             .epsilon = kLayerNormEpsilon,
                             .finish_shape = FinishHfBert,
                             .outer_prefix = "nomic_bert.",
                             .rope_base = kLaterBase,
                             .tensors = kTensors,
                             .add_parameters = AddHfEncoder,
                             .left_out = kHfTrainingHeads,
                             .is_encoder = true}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Nomic v1", .read = Read, .hf = kHf};

}  // namespace kvant::arch::nomic_bert
