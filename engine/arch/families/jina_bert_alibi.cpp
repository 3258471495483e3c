// JinaBERT (arXiv 2310.19923): BERT with ALiBi in both directions instead of positions, and gated
// feed-forwards. The models for code have norms of all queries and all keys, and a norm of the
// attention's sum before a norm of what that adds to the stream.
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hidden_activation.h"
#include "engine/arch/text_encoder.h"

namespace kvant::arch::jina_bert_alibi {
namespace {

constexpr std::string_view kName = "jina-bert-v2";

constexpr float kMaxAlibiBias = 8;

// Files have a feed-forward with gates, whether the gates are a matrix of their own or not, or one
// without.
Result<std::vector<Block>> ReadFfns(const Metadata& metadata, const Stack& stack) {
  KVANT_ASSIGN(const auto activation, ReadHiddenActivation(metadata, cpu::Activation::kGeluErf));
  KVANT_ASSIGN(const auto gated, ReadGatedFfns(metadata, stack, activation));
  KVANT_ASSIGN(const auto plain, ReadPlainFfns(metadata, stack, activation));
  std::vector<Block> ffns = AsBlocks(gated);
  for (size_t i = 0; i < ffns.size(); ++i) {
    const auto find = [&](const char* name) {
      return metadata.file().FindTensor(fmt::format("blk.{}.{}.weight", i, name));
    };
    const formats::GgufTensor* up = find("ffn_up");
    const bool has_gates =
        find("ffn_gate") != nullptr || (up != nullptr && up->dims[1] != plain[i].width);
    if (!has_gates) ffns[i] = plain[i];
  }
  return ffns;
}

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadBertEncoder(metadata));
  Stack& stack = *model.embedder;
  const float epsilon = stack.final_norm.epsilon;
  KVANT_ASSIGN(auto attentions, ReadBothSided(metadata, stack));
  KVANT_ASSIGN(const float bias, ReadMaxAlibiBias(metadata, kMaxAlibiBias));
  for (Attention& attention : attentions) {
    attention.bias_slopes = AlibiSlopes(attention.heads, bias);
    attention.head_norm_weights = HeadNormWeights::kProjection;
    attention.head_norm_kind = NormKind::kLayer;
    attention.head_norm_epsilon = epsilon;
  }
  KVANT_ASSIGN(const auto ffns, ReadFfns(metadata, stack));
  FillLayersNormedAfter(stack, attentions, ffns);
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    const std::string second = fmt::format("blk.{}.attn_norm_2.weight", i);
    if (metadata.file().FindTensor(second) == nullptr) continue;
    Sublayer& sublayer = stack.layers[i].sublayers.front();
    sublayer.norm_with_stream = sublayer.norm_of_sum;
    sublayer.norm_of_sum = Norm{NormKind::kLayer, "attn_norm_2", epsilon};
  }
  return model;
}

constexpr HfTensor Half(std::string_view hf_name, std::string_view gguf_name, RowPart part) {
  HfTensor tensor = HfMatrix(hf_name, gguf_name, Extent::kFfn, Extent::kDim);
  tensor.part = part;
  return tensor;
}

constexpr auto kBeforeFfn =
    Join(kHfBertEmbedding, kHfBertTypes, kHfBertQkv, kHfBertAttentionOutput);
constexpr auto kEncoder = Join(
    kBeforeFfn,
    std::array{Half("encoder.layer.{}.mlp.gated_layers.weight", "blk.{}.ffn_gate.weight",
                    RowPart::kFirstHalf),
               Half("encoder.layer.{}.mlp.gated_layers.weight", "blk.{}.ffn_up.weight",
                    RowPart::kSecondHalf)},
    HfWithBias("encoder.layer.{}.mlp.wo.weight", "encoder.layer.{}.mlp.wo.bias",
               "blk.{}.ffn_down.weight", "blk.{}.ffn_down.bias", Extent::kDim, Extent::kFfn),
    HfWithBias("encoder.layer.{}.mlp.layernorm.weight", "encoder.layer.{}.mlp.layernorm.bias",
               "blk.{}.layer_output_norm.weight", "blk.{}.layer_output_norm.bias", Extent::kDim));
constexpr auto kWithScores = Join(kEncoder, kHfBertClassifier);
// The models for code have the gate behind the other half.
constexpr auto kForCode = Join(
    kBeforeFfn,
    HfWithBias("encoder.layer.{}.attention.self.layer_norm_q.weight",
               "encoder.layer.{}.attention.self.layer_norm_q.bias", "blk.{}.attn_q_norm.weight",
               "blk.{}.attn_q_norm.bias", Extent::kQRows),
    HfWithBias("encoder.layer.{}.attention.self.layer_norm_k.weight",
               "encoder.layer.{}.attention.self.layer_norm_k.bias", "blk.{}.attn_k_norm.weight",
               "blk.{}.attn_k_norm.bias", Extent::kKvRows),
    HfWithBias("encoder.layer.{}.layer_norm_1.weight", "encoder.layer.{}.layer_norm_1.bias",
               "blk.{}.attn_norm_2.weight", "blk.{}.attn_norm_2.bias", Extent::kDim),
    std::array{Half("encoder.layer.{}.mlp.up_gated_layer.weight", "blk.{}.ffn_gate.weight",
                    RowPart::kSecondHalf),
               Half("encoder.layer.{}.mlp.up_gated_layer.weight", "blk.{}.ffn_up.weight",
                    RowPart::kFirstHalf)},
    HfWithBias("encoder.layer.{}.mlp.down_layer.weight", "encoder.layer.{}.mlp.down_layer.bias",
               "blk.{}.ffn_down.weight", "blk.{}.ffn_down.bias", Extent::kDim, Extent::kFfn),
    HfWithBias("encoder.layer.{}.layer_norm_2.weight", "encoder.layer.{}.layer_norm_2.bias",
               "blk.{}.layer_output_norm.weight", "blk.{}.layer_output_norm.bias", Extent::kDim));

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const auto positions, config.String("position_embedding_type"));
  if (positions.value_or("alibi") != "alibi") {
    return config.Wrong("position_embedding_type", "alibi");
  }
  KVANT_ASSIGN(const auto segments, config.Integer("type_vocab_size", kHfVocabMax));
  shape.segments = segments.value_or(0);
  return {};
}

Status FinishShapeWithLabels(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(FinishShape(config, shape));
  return ReadHfLabels(config, shape);
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddHfEncoder(config, shape, out));
  KVANT_ASSIGN(const auto kind, config.String("feed_forward_type"));
  if (kind.value_or("geglu") == "reglu") out.writer->AddString(out.Key("hidden_act"), "relu");
  return {};
}

// The published code of the models for code is named in their settings.
bool IsForCode(const JsonObject& config) {
  const formats::Json* code = config.Find("auto_map");
  return code != nullptr && code->dump().find("qk-post-norm") != std::string::npos;
}

constexpr std::string_view kClasses[] = {"JinaBertModel", "JinaBertForMaskedLM"};
constexpr std::string_view kScoreClasses[] = {"JinaBertForSequenceClassification"};
constexpr std::string_view kGates[] = {"geglu", "reglu"};
constexpr std::string_view kHeads[] = {"pooler.", "bert.pooler.", "cls.predictions."};

constexpr HfFamily Row(std::span<const std::string_view> classes,
                       std::span<const HfTensor> tensors) {
  return {.classes = classes,
          .arch = kName,
          .activation = {.key = "feed_forward_type", .names = kGates},
          .epsilon = {.key = "layer_norm_eps",
                      .gguf_key = "attention.layer_norm_epsilon",
                      .otherwise = 1e-12},
          .finish_shape = FinishShape,
          .outer_prefix = "bert.",
          .rope_base = 0,
          .tensors = tensors,
          .add_parameters = AddParameters,
          .left_out = kHeads,
          .is_encoder = true};
}

constexpr HfFamily RowForCode() {
  HfFamily row = Row(kClasses, kForCode);
  row.is_of = IsForCode;
  return row;
}

constexpr HfFamily RowOfScores() {
  HfFamily row = Row(kScoreClasses, kWithScores);
  row.finish_shape = FinishShapeWithLabels;
  row.left_out = {};
  return row;
}

constexpr HfFamily kHf[] = {RowForCode(), Row(kClasses, kEncoder), RowOfScores()};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Jina v2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::jina_bert_alibi
