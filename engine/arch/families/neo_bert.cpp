// NeoBERT (arXiv 2502.19587): a Llama-like encoder whose positions see each other, with fused
// matrices. The folder has query, key and value of a head side by side; files have all queries, all
// keys and all values, as llama.cpp reads them (its converter leaves the rows where they are, so
// its files compute something else).
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/read_ropes.h"
#include "engine/arch/text_encoder.h"

namespace kvant::arch::neo_bert {
namespace {

constexpr std::string_view kName = "neo-bert";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadTextEncoder(metadata, NormKind::kRms));
  Stack& stack = *model.embedder;
  stack.final_norm.tensor = "enc.output_norm";
  KVANT_ASSIGN(auto attentions, ReadBothSided(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr auto kEncoder =
    Join(HfEmbedding("encoder.weight"), HfNorm("layer_norm.weight", "enc.output_norm.weight"),
         HfNorm("transformer_encoder.{}.attention_norm.weight", "blk.{}.attn_norm.weight"),
         std::array{Grouped(HfMatrix("transformer_encoder.{}.qkv.weight", "blk.{}.attn_qkv.weight",
                                     Extent::kQkvRows, Extent::kDim)),
                    HfMatrix("transformer_encoder.{}.wo.weight", "blk.{}.attn_output.weight",
                             Extent::kDim, Extent::kQRows)},
         HfNorm("transformer_encoder.{}.ffn_norm.weight", "blk.{}.ffn_norm.weight"),
         std::array{HfMatrix("transformer_encoder.{}.ffn.w12.weight", "blk.{}.ffn_up.weight",
                             Extent::kTwoFfn, Extent::kDim),
                    HfMatrix("transformer_encoder.{}.ffn.w3.weight", "blk.{}.ffn_down.weight",
                             Extent::kDim, Extent::kFfn)});
constexpr auto kWithScores = Join(
    kEncoder,
    HfWithBias("dense.weight", "dense.bias", "cls.weight", "cls.bias", Extent::kDim, Extent::kDim),
    HfWithBias("classifier.weight", "classifier.bias", "cls.output.weight", "cls.output.bias",
               Extent::kLabels, Extent::kDim));

// The class takes two thirds of the width in config.json, rounded up to a multiple of 8.
Status FinishShape(const JsonObject&, HfShape& shape) {
  constexpr int64_t kMultiple = 8;
  shape.ffn = (2 * shape.ffn / 3 + kMultiple - 1) / kMultiple * kMultiple;
  return {};
}

Status FinishShapeWithLabels(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(FinishShape(config, shape));
  return ReadHfLabels(config, shape);
}

constexpr std::string_view kClasses[] = {"NeoBERT", "NeoBERTLMHead"};
constexpr std::string_view kScoreClasses[] = {"NeoBERTForSequenceClassification"};
constexpr std::string_view kActivations[] = {"SwiGLU", "swiglu"};
constexpr std::string_view kHeads[] = {"decoder."};

constexpr HfFamily Row(std::span<const std::string_view> classes,
                       std::span<const HfTensor> tensors) {
  return {.classes = classes,
          .arch = kName,
          .activation = {.key = "hidden_act", .names = kActivations},
          .keys = {.kv_heads = "", .context = "max_length"},
          .epsilon = {.key = "norm_eps", .otherwise = 1e-6},
          .finish_shape = FinishShape,
          .outer_prefix = "model.",
          .tensors = tensors,
          .add_parameters = AddHfEncoder,
          .left_out = kHeads,
          .is_encoder = true};
}

constexpr HfFamily RowOfScores() {
  HfFamily row = Row(kScoreClasses, kWithScores);
  row.finish_shape = FinishShapeWithLabels;
  row.left_out = {};
  return row;
}

constexpr HfFamily kHf[] = {Row(kClasses, kEncoder), RowOfScores()};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "NeoBERT", .read = Read, .hf = kHf};

}  // namespace kvant::arch::neo_bert
