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
  model.embedding.classifier_activation = cpu::Activation::kGeluErf;
  model.embedding.classifier_pooling = Pooling::kMean;
  return model;
}

constexpr auto kTensors =
    Join(HfEmbedding("model.embed_tokens.weight"),
         HfNorm("model.norm.weight", "output_norm.weight"), kHfNormBeforeAttention, kHfSeparateQkv,
         kHfAttentionOutput, kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown);

constexpr auto kWithScores = Join(
    kTensors,
    HfWithBias("dense.weight", "dense.bias", "cls.weight", "cls.bias", Extent::kDim, Extent::kDim),
    HfWithBias("classifier.weight", "classifier.bias", "cls.output.weight", "cls.output.bias",
               Extent::kLabels, Extent::kDim));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddHfEncoder(config, shape, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

// A head that scores each row and takes the mean of the scores (late) has the same logits as one
// that takes the mean in front of its last matrix.
Status AddScores(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto named, config.String("classifier_pooling"));
  const std::string pooling = named.value_or("late");
  if (pooling != "late" && pooling != "mean" && pooling != "bos") {
    return config.Wrong("classifier_pooling", "late, mean or bos");
  }
  out.writer->AddU32(out.Key("classifier.pooling_type"),
                     static_cast<uint32_t>(pooling == "bos" ? Pooling::kCls : Pooling::kMean));
  if (pooling == "late") out.writer->AddBool(out.Key("classifier.reads_rows"), true);
  return AddParameters(config, shape, out);
}

constexpr std::string_view kClasses[] = {"EuroBertModel", "EuroBertForMaskedLM"};
constexpr std::string_view kScoreClasses[] = {"EuroBertForSequenceClassification"};
constexpr std::string_view kHeads[] = {"lm_head."};
constexpr double kBase = 250000.0;

constexpr HfFamily Row() {
  return {.classes = kClasses,
          .arch = kName,
          .activation = kSiluActivation,
          .optional_prefix = "model.",
          .rope_base = kBase,
          .tensors = kTensors,
          .add_parameters = AddParameters,
          .left_out = kHeads,
          .is_encoder = true};
}

constexpr HfFamily RowOfScores() {
  HfFamily row = Row();
  row.classes = kScoreClasses;
  row.finish_shape = ReadHfLabels;
  row.tensors = kWithScores;
  row.add_parameters = AddScores;
  row.left_out = {};
  return row;
}

constexpr HfFamily kHf[] = {Row(), RowOfScores()};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "EuroBERT", .read = Read, .hf = kHf};

}  // namespace kvant::arch::eurobert
