#include "engine/arch/hf/hf_bert.h"

#include "base/result.h"
#include "engine/arch/families/bert.h"
#include "engine/arch/hf/hf_encoder.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch {
namespace {

// Epsilons of configurations that say none.
constexpr HfEpsilon kBertEpsilon = {
    .key = "layer_norm_eps", .gguf_key = "attention.layer_norm_epsilon", .otherwise = 1e-12};

constexpr auto kEncoder = Join(kHfBertEmbedding, kHfBertTypes, kHfBertPositions, kHfBertLayers);
constexpr auto kEncoderWithScores = Join(kEncoder, kHfBertClassifier);
constexpr auto kRoberta = Join(kHfBertEmbedding, kHfBertTypes, kHfRobertaPositions, kHfBertLayers);
constexpr auto kRobertaWithScores = Join(kRoberta, kHfRobertaClassifier);

constexpr auto kDistil = Join(
    kHfBertEmbedding, kHfBertPositions,
    HfWithBias("transformer.layer.{}.attention.q_lin.weight",
               "transformer.layer.{}.attention.q_lin.bias", "blk.{}.attn_q.weight",
               "blk.{}.attn_q.bias", Extent::kQRows, Extent::kDim),
    HfWithBias("transformer.layer.{}.attention.k_lin.weight",
               "transformer.layer.{}.attention.k_lin.bias", "blk.{}.attn_k.weight",
               "blk.{}.attn_k.bias", Extent::kKvRows, Extent::kDim),
    HfWithBias("transformer.layer.{}.attention.v_lin.weight",
               "transformer.layer.{}.attention.v_lin.bias", "blk.{}.attn_v.weight",
               "blk.{}.attn_v.bias", Extent::kKvRows, Extent::kDim),
    HfWithBias("transformer.layer.{}.attention.out_lin.weight",
               "transformer.layer.{}.attention.out_lin.bias", "blk.{}.attn_output.weight",
               "blk.{}.attn_output.bias", Extent::kDim, Extent::kQRows),
    HfWithBias("transformer.layer.{}.sa_layer_norm.weight",
               "transformer.layer.{}.sa_layer_norm.bias", "blk.{}.attn_output_norm.weight",
               "blk.{}.attn_output_norm.bias", Extent::kDim),
    HfWithBias("transformer.layer.{}.ffn.lin1.weight", "transformer.layer.{}.ffn.lin1.bias",
               "blk.{}.ffn_up.weight", "blk.{}.ffn_up.bias", Extent::kFfn, Extent::kDim),
    HfWithBias("transformer.layer.{}.ffn.lin2.weight", "transformer.layer.{}.ffn.lin2.bias",
               "blk.{}.ffn_down.weight", "blk.{}.ffn_down.bias", Extent::kDim, Extent::kFfn),
    HfWithBias("transformer.layer.{}.output_layer_norm.weight",
               "transformer.layer.{}.output_layer_norm.bias", "blk.{}.layer_output_norm.weight",
               "blk.{}.layer_output_norm.bias", Extent::kDim));
constexpr auto kDistilWithScores =
    Join(kDistil,
         HfWithBias("pre_classifier.weight", "pre_classifier.bias", "cls.weight", "cls.bias",
                    Extent::kDim, Extent::kDim),
         HfWithBias("classifier.weight", "classifier.bias", "cls.output.weight", "cls.output.bias",
                    Extent::kLabels, Extent::kDim));

Status AddBert(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddHfEncoder(config, shape, out));
  return AddHfActivation(config, "hidden_act", out);
}

Status FinishBertLabels(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(FinishHfBert(config, shape));
  return ReadHfLabels(config, shape);
}

Status FinishRobertaLabels(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(FinishHfRoberta(config, shape));
  return ReadHfLabels(config, shape);
}

Status AddDistil(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddHfEncoder(config, shape, out));
  // Behind the first matrix of the head; BERT has a hyperbolic tangent there.
  if (shape.labels > 0) out.writer->AddString(out.Key("classifier.hidden_act"), "relu");
  return AddHfActivation(config, "activation", out);
}

// BERT with heads of other kinds is BERT for vectors.
constexpr std::string_view kClasses[] = {"BertModel", "BertForMaskedLM", "BertForPreTraining"};
constexpr std::string_view kScoreClasses[] = {"BertForSequenceClassification"};
constexpr std::string_view kRobertaClasses[] = {"RobertaModel", "RobertaForMaskedLM",
                                                "CamembertModel", "CamembertForMaskedLM"};
constexpr std::string_view kRobertaScoreClasses[] = {"RobertaForSequenceClassification",
                                                     "CamembertForSequenceClassification"};
constexpr std::string_view kXlmClasses[] = {"XLMRobertaModel", "XLMRobertaForMaskedLM"};
constexpr std::string_view kXlmScoreClasses[] = {"XLMRobertaForSequenceClassification"};
constexpr std::string_view kDistilClasses[] = {"DistilBertModel", "DistilBertForMaskedLM"};
constexpr std::string_view kDistilScoreClasses[] = {"DistilBertForSequenceClassification"};

constexpr std::string_view kDistilHeads[] = {"vocab_transform.", "vocab_layer_norm.",
                                             "vocab_projector."};

constexpr HfFamily BertRow(std::span<const std::string_view> classes, std::string_view outer_prefix,
                           std::span<const HfTensor> tensors) {
  return {.classes = classes,
          .arch = kBertName,
          .activation = kHfEncoderActivation,
          .epsilon = kBertEpsilon,
          .finish_shape = FinishHfBert,
          .outer_prefix = outer_prefix,
          .rope_base = 0,
          .tensors = tensors,
          .add_parameters = AddBert,
          .left_out = kHfTrainingHeads,
          .is_encoder = true};
}

constexpr HfFamily BertRowOfScores(std::span<const std::string_view> classes,
                                   std::string_view outer_prefix,
                                   std::span<const HfTensor> tensors) {
  HfFamily row = BertRow(classes, outer_prefix, tensors);
  row.finish_shape = FinishBertLabels;
  row.left_out = {};
  return row;
}

constexpr HfFamily RobertaRow(std::span<const std::string_view> classes) {
  HfFamily row = BertRow(classes, "roberta.", kRoberta);
  row.finish_shape = FinishHfRoberta;
  return row;
}

constexpr HfFamily RobertaRowOfScores(std::span<const std::string_view> classes) {
  HfFamily row = RobertaRow(classes);
  row.tensors = kRobertaWithScores;
  row.finish_shape = FinishRobertaLabels;
  return row;
}

// XLM-RoBERTa numbers the pieces of its vocabulary as fairseq does.
constexpr HfFamily OfXlm(HfFamily row) {
  row.fairseq_ids = true;
  return row;
}

constexpr HfFamily OfDistil(HfFamily row) {
  row.activation.key = "activation";
  row.keys = {
      .layers = "n_layers", .dim = "dim", .ffn = "hidden_dim", .heads = "n_heads", .kv_heads = ""};
  row.add_parameters = AddDistil;
  row.left_out = kDistilHeads;
  return row;
}

constexpr HfFamily kRows[] = {
    BertRow(kClasses, "bert.", kEncoder),
    BertRowOfScores(kScoreClasses, "bert.", kEncoderWithScores),
    RobertaRow(kRobertaClasses),
    RobertaRowOfScores(kRobertaScoreClasses),
    OfXlm(RobertaRow(kXlmClasses)),
    OfXlm(RobertaRowOfScores(kXlmScoreClasses)),
    OfDistil(BertRow(kDistilClasses, "distilbert.", kDistil)),
    OfDistil(BertRowOfScores(kDistilScoreClasses, "distilbert.", kDistilWithScores)),
};

}  // namespace

std::span<const HfFamily> HfBertFamilies() { return kRows; }

}  // namespace kvant::arch
