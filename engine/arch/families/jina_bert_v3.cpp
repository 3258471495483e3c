// Jina embeddings v3 (arXiv 2409.10173): XLM-RoBERTa with rotary positions instead of learned ones.
// Its adapters for tasks become part of the weights (engine/convert/task_adapters.h).
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder.h"
#include "engine/arch/hf/hf_nomic.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/text_encoder.h"

namespace kvant::arch::jina_bert_v3 {
namespace {

constexpr std::string_view kName = "jina-bert-v3";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadBertEncoder(metadata));
  Stack& stack = *model.embedder;
  KVANT_ASSIGN(const auto attentions, ReadRotatedBothSided(metadata, model));
  KVANT_ASSIGN(const auto ffns, ReadPlainFfns(metadata, stack, cpu::Activation::kGeluErf));
  FillLayersNormedAfter(stack, attentions, AsBlocks(ffns));
  return model;
}

constexpr auto kTensors =
    Join(HfNomicAttention(
             {"encoder.layers.{}.mixer.Wqkv.weight", "encoder.layers.{}.mixer.Wqkv.bias",
              "encoder.layers.{}.mixer.out_proj.weight", "encoder.layers.{}.mixer.out_proj.bias"}),
         kHfNomicPlainFfn);

constexpr double kBase = 20000.0;
constexpr std::string_view kPositionsKey = "position_embedding_type";

// Published folders name the class that they derive from.
bool IsRotated(const JsonObject& config) {
  const auto positions = config.String(kPositionsKey);
  return positions.ok() && *positions == "rotary";
}

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const auto segments, config.Integer("type_vocab_size", kHfVocabMax));
  shape.segments = segments.value_or(0);
  return {};
}

// The published settings count the two positions that RoBERTa leaves out.
Status FinishPublishedShape(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(FinishShape(config, shape));
  constexpr int64_t kLeftOut = 2;
  shape.context -= kLeftOut;
  return shape.context < 1 ? Status(config.Wrong("max_position_embeddings", "at least 3"))
                           : Status();
}

Status AddPublished(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto base, config.Number("rotary_emb_base"));
  if (!(base.value_or(kBase) > 0)) return config.Wrong("rotary_emb_base", "a positive number");
  out.writer->AddF32(out.Key("rope.freq_base"), static_cast<float>(base.value_or(kBase)));
  return AddHfEncoder(config, shape, out);
}

constexpr std::string_view kClasses[] = {"JinaEmbeddingsV3Model"};
constexpr std::string_view kPublishedClasses[] = {"XLMRobertaModel", "XLMRobertaLoRA"};
constexpr std::string_view kGelu[] = {"gelu"};
constexpr std::string_view kHeads[] = {"pooler.", "roberta.pooler.", "lm_head."};

constexpr HfFamily Row() {
  return {.classes = kClasses,
          .arch = kName,
          .activation = {.key = "hidden_act", .names = kGelu},
          .epsilon = kLayerNormEpsilon,
          .finish_shape = FinishShape,
          .outer_prefix = "roberta.",
          .rope_base = kBase,
          .tensors = kTensors,
          .add_parameters = AddHfEncoder,
          .left_out = kHeads,
          .is_encoder = true,
          .fairseq_ids = true};
}

constexpr HfFamily Published() {
  HfFamily row = Row();
  row.classes = kPublishedClasses;
  row.is_of = IsRotated;
  row.finish_shape = FinishPublishedShape;
  row.own_rope_base = true;
  row.add_parameters = AddPublished;
  return row;
}

constexpr HfFamily kHf[] = {Published(), Row()};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Jina v3", .read = Read, .hf = kHf};

}  // namespace kvant::arch::jina_bert_v3
