// Encoders of texts in folders: BERT and its relatives, whose rows become vectors or scores. The
// tensors of BERT's classes, and the keys that such encoders have in common.
//
// The parts behind the encoder are those of engine/arch/embedding_head.h: where a class makes
// scores, its pooler or the first matrix of its head is `cls`, and the matrix of labels is
// `cls.output`. (llama.cpp's converter leaves BERT's pooler out, so its scores are others.)
//
// Errors name the file and the key. Thread-safety: pure.
#pragma once

#include <array>
#include <string_view>

#include "base/result.h"
#include "engine/arch/hf/hf_family.h"
#include "engine/arch/hf/hf_tensors.h"
#include "kvant/pooling.h"

namespace kvant::arch {

// The weight and the bias of a matrix or norm. A bias may be missing.
constexpr std::array<HfTensor, 2> HfWithBias(std::string_view hf_weight, std::string_view hf_bias,
                                             std::string_view weight, std::string_view bias,
                                             Extent rows, Extent columns = Extent::kNone) {
  return {{HfMatrix(hf_weight, weight, rows, columns), HfBias(hf_bias, bias, rows)}};
}

// BERT under the names that its classes and RoBERTa's have behind their beginning.
inline constexpr auto kHfBertTypes = std::array{
    HfMatrix("embeddings.token_type_embeddings.weight", "token_types.weight", Extent::kSegments,
             Extent::kDim),
};
inline constexpr auto kHfBertPositions = std::array{
    HfMatrix("embeddings.position_embeddings.weight", "position_embd.weight", Extent::kContext,
             Extent::kDim),
};
inline constexpr auto kHfRobertaPositions = std::array{
    HfPositionsBehind(RowPart::kBehindUnread, "embeddings.position_embeddings.weight",
                      "position_embd.weight"),
};
inline constexpr auto kHfBertEmbedding =
    Join(HfEmbedding("embeddings.word_embeddings.weight"),
         HfWithBias("embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias",
                    "token_embd_norm.weight", "token_embd_norm.bias", Extent::kDim));
inline constexpr auto kHfBertQkv =
    Join(HfWithBias("encoder.layer.{}.attention.self.query.weight",
                    "encoder.layer.{}.attention.self.query.bias", "blk.{}.attn_q.weight",
                    "blk.{}.attn_q.bias", Extent::kQRows, Extent::kDim),
         HfWithBias("encoder.layer.{}.attention.self.key.weight",
                    "encoder.layer.{}.attention.self.key.bias", "blk.{}.attn_k.weight",
                    "blk.{}.attn_k.bias", Extent::kKvRows, Extent::kDim),
         HfWithBias("encoder.layer.{}.attention.self.value.weight",
                    "encoder.layer.{}.attention.self.value.bias", "blk.{}.attn_v.weight",
                    "blk.{}.attn_v.bias", Extent::kKvRows, Extent::kDim));
inline constexpr auto kHfBertAttentionOutput = Join(
    HfWithBias("encoder.layer.{}.attention.output.dense.weight",
               "encoder.layer.{}.attention.output.dense.bias", "blk.{}.attn_output.weight",
               "blk.{}.attn_output.bias", Extent::kDim, Extent::kQRows),
    HfWithBias("encoder.layer.{}.attention.output.LayerNorm.weight",
               "encoder.layer.{}.attention.output.LayerNorm.bias", "blk.{}.attn_output_norm.weight",
               "blk.{}.attn_output_norm.bias", Extent::kDim));
inline constexpr auto kHfBertFfn = Join(
    HfWithBias("encoder.layer.{}.intermediate.dense.weight",
               "encoder.layer.{}.intermediate.dense.bias", "blk.{}.ffn_up.weight",
               "blk.{}.ffn_up.bias", Extent::kFfn, Extent::kDim),
    HfWithBias("encoder.layer.{}.output.dense.weight", "encoder.layer.{}.output.dense.bias",
               "blk.{}.ffn_down.weight", "blk.{}.ffn_down.bias", Extent::kDim, Extent::kFfn),
    HfWithBias("encoder.layer.{}.output.LayerNorm.weight", "encoder.layer.{}.output.LayerNorm.bias",
               "blk.{}.layer_output_norm.weight", "blk.{}.layer_output_norm.bias", Extent::kDim));
inline constexpr auto kHfBertLayers = Join(kHfBertQkv, kHfBertAttentionOutput, kHfBertFfn);

// The heads of scores: the pooler and the classifier of BERT's classes, and the two matrices of
// RoBERTa's.
inline constexpr auto kHfBertClassifier =
    Join(HfWithBias("pooler.dense.weight", "pooler.dense.bias", "cls.weight", "cls.bias",
                    Extent::kDim, Extent::kDim),
         HfWithBias("classifier.weight", "classifier.bias", "cls.output.weight", "cls.output.bias",
                    Extent::kLabels, Extent::kDim));
inline constexpr auto kHfRobertaClassifier =
    Join(HfWithBias("classifier.dense.weight", "classifier.dense.bias", "cls.weight", "cls.bias",
                    Extent::kDim, Extent::kDim),
         HfWithBias("classifier.out_proj.weight", "classifier.out_proj.bias", "cls.output.weight",
                    "cls.output.bias", Extent::kLabels, Extent::kDim));

// The ends of decoders that make vectors or scores, and the matrix that makes scores of the last
// row.
inline constexpr auto kHfInnerEnds = Join(HfEmbedding("model.embed_tokens.weight"),
                                          HfNorm("model.norm.weight", "output_norm.weight"));
inline constexpr auto kHfScores = std::array{
    HfMatrix("score.weight", "cls.output.weight", Extent::kLabels, Extent::kDim),
};

// Tensors that an encoder's classes were trained with besides: the pooler, and heads that guess
// words and whether two texts follow each other.
inline constexpr std::string_view kHfTrainingHeads[] = {
    "pooler.",          "bert.pooler.",          "roberta.pooler.",
    "cls.predictions.", "cls.seq_relationship.", "lm_head."};

// HfFamily::finish_shape: the segments (type_vocab_size), if any. kNotSupported for positions that
// are not learned, and for a decoder of such a class.
Status FinishHfBert(const JsonObject& config, HfShape& shape);
// The shape of RoBERTa's classes, whose first position is the one behind the padding token.
Status FinishHfRoberta(const JsonObject& config, HfShape& shape);
// The labels of a class that makes scores: id2label, or num_labels, or 2.
Status ReadHfLabels(const JsonObject& config, HfShape& shape);

// Writes what readers need of every encoder of texts: attention.causal, the number of segments and,
// for a class with labels, pooling_type and the names of the labels.
Status AddHfEncoder(const JsonObject& config, const HfShape& shape, Parameters& out);
// Writes pooling_type, of rows that become scores, and the names of the labels.
Status AddHfLabels(const JsonObject& config, Parameters& out);

// Writes hidden_act, by the key `name` of config.json, where it is not GELU itself.
Status AddHfActivation(const JsonObject& config, std::string_view name, Parameters& out);

// Activations of encoders by the names that hidden_act gives them.
inline constexpr std::string_view kHfEncoderActivations[] = {
    "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu", "silu", "swish"};
inline constexpr HfActivation kHfEncoderActivation = {.key = "hidden_act",
                                                      .names = kHfEncoderActivations};

}  // namespace kvant::arch
