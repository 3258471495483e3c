// ModernBERT (arXiv 2412.13663): norms without biases before the sublayers, rotary positions, gated
// feed-forwards whose gate stands first, and a window on both sides in all but every third layer.
// The first layer attends to the normed embedding as it is. A classifier reads the mean of the rows
// unless the file says otherwise, and has GELU and a norm between its matrices.
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/hf/rope_settings.h"
#include "engine/arch/hidden_activation.h"
#include "engine/arch/read_ropes.h"
#include "engine/arch/text_encoder.h"
#include "engine/limits.h"
#include "formats/json_object.h"

namespace kvant::arch::modern_bert {
namespace {

constexpr std::string_view kName = "modern-bert";

constexpr int64_t kPattern = 3;  // every third layer sees all positions, the first one included
constexpr double kBase = 160000.0;
constexpr double kLocalBase = 10000.0;
constexpr const char* kPatternKey = "attention.sliding_window_pattern";

// Which layers have a window.
Result<std::vector<bool>> ReadWindows(const Metadata& metadata, size_t layers) {
  KVANT_ASSIGN(auto flags, metadata.FlagPerLayer(kPatternKey, layers));
  if (flags.has_value()) return std::move(*flags);
  KVANT_ASSIGN(const int64_t pattern, metadata.CountOr(kPatternKey, kLayersMax, kPattern));
  std::vector<bool> windows(layers);
  for (size_t i = 0; i < layers; ++i) windows[i] = i % static_cast<size_t>(pattern) != 0;
  return windows;
}

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadTextEncoder(metadata, NormKind::kLayer));
  Stack& stack = *model.embedder;
  stack.input.norm = Norm{NormKind::kLayer, "token_embd_norm", stack.final_norm.epsilon};
  KVANT_ASSIGN(auto attentions, ReadBothSided(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto windows, ReadWindows(metadata, attentions.size()));
  for (size_t i = 0; i < attentions.size(); ++i) {
    if (!windows[i]) attentions[i].mask.window = 0;
  }
  KVANT_ASSIGN(const float local_base,
               metadata.PositiveOr("rope.freq_base_swa", model.ropes.front().base));
  GiveLayersTheBase(local_base, windows, attentions, model.ropes);
  KVANT_ASSIGN(const auto activation, ReadHiddenActivation(metadata, cpu::Activation::kGeluErf));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, activation));
  FillLayers(stack, {}, attentions, ffns);
  if (metadata.file().FindTensor("blk.0.attn_norm.weight") == nullptr) {
    stack.layers.front().sublayers.front().norm_before.reset();
  }
  model.embedding.classifier_activation = cpu::Activation::kGeluErf;
  model.embedding.classifier_pooling = Pooling::kMean;
  return model;
}

// The first layer reads the normed embedding.
template <size_t kSize>
constexpr std::array<HfTensor, kSize> BehindFirst(std::array<HfTensor, kSize> tensors) {
  for (HfTensor& tensor : tensors) tensor.layers = InLayers::kAllButFirst;
  return tensors;
}

constexpr auto kEncoder = Join(
    HfEmbedding("embeddings.tok_embeddings.weight"),
    HfWithBias("embeddings.norm.weight", "embeddings.norm.bias", "token_embd_norm.weight",
               "token_embd_norm.bias", Extent::kDim),
    HfWithBias("final_norm.weight", "final_norm.bias", "output_norm.weight", "output_norm.bias",
               Extent::kDim),
    BehindFirst(HfWithBias("layers.{}.attn_norm.weight", "layers.{}.attn_norm.bias",
                           "blk.{}.attn_norm.weight", "blk.{}.attn_norm.bias", Extent::kDim)),
    HfWithBias("layers.{}.attn.Wqkv.weight", "layers.{}.attn.Wqkv.bias", "blk.{}.attn_qkv.weight",
               "blk.{}.attn_qkv.bias", Extent::kQkvRows, Extent::kDim),
    HfWithBias("layers.{}.attn.Wo.weight", "layers.{}.attn.Wo.bias", "blk.{}.attn_output.weight",
               "blk.{}.attn_output.bias", Extent::kDim, Extent::kQRows),
    HfWithBias("layers.{}.mlp_norm.weight", "layers.{}.mlp_norm.bias", "blk.{}.ffn_norm.weight",
               "blk.{}.ffn_norm.bias", Extent::kDim),
    HfWithBias("layers.{}.mlp.Wi.weight", "layers.{}.mlp.Wi.bias", "blk.{}.ffn_up.weight",
               "blk.{}.ffn_up.bias", Extent::kTwoFfn, Extent::kDim),
    HfWithBias("layers.{}.mlp.Wo.weight", "layers.{}.mlp.Wo.bias", "blk.{}.ffn_down.weight",
               "blk.{}.ffn_down.bias", Extent::kDim, Extent::kFfn));
constexpr auto kWithScores =
    Join(kEncoder,
         HfWithBias("head.dense.weight", "head.dense.bias", "cls.weight", "cls.bias", Extent::kDim,
                    Extent::kDim),
         HfWithBias("head.norm.weight", "head.norm.bias", "cls.norm.weight", "cls.norm.bias",
                    Extent::kDim),
         HfWithBias("classifier.weight", "classifier.bias", "cls.output.weight", "cls.output.bias",
                    Extent::kLabels, Extent::kDim));

// Writes the window and the layers that have none: every n-th, the first one included.
Status AddWindows(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto window, config.Integer("local_attention", kContextMax));
  KVANT_ASSIGN(const auto given, config.Integer("global_attn_every_n_layers", kLayersMax));
  const int64_t pattern = given.value_or(kPattern);
  if (pattern < 1) return config.Wrong("global_attn_every_n_layers", "at least 1");
  const formats::Json* types = config.Find("layer_types");
  for (int64_t i = 0; types != nullptr && i < shape.layers; ++i) {
    const bool sees_all = i % pattern == 0;
    const bool is_known =
        types->is_array() && std::ssize(*types) == shape.layers &&
        (*types)[static_cast<size_t>(i)] == (sees_all ? "full_attention" : "sliding_attention");
    if (!is_known) {
      return config.Wrong("layer_types",
                          fmt::format("full_attention in every {} layers from the first on, and "
                                      "sliding_attention in the others",
                                      pattern));
    }
  }
  out.writer->AddU32(out.Key("attention.sliding_window"),
                     static_cast<uint32_t>(window.value_or(128)));
  out.writer->AddU32(out.Key(kPatternKey), static_cast<uint32_t>(pattern));
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddHfEncoder(config, shape, out));
  KVANT_TRY(AddHfActivation(config, "hidden_activation", out));
  KVANT_TRY(AddWindows(config, shape, out));
  KVANT_ASSIGN(const RopeSettings rope,
               RopeSettings::Read(config, {.base_key = "global_rope_theta"}));
  KVANT_ASSIGN(const auto type, rope.Type());
  if (type) return rope.UnsupportedType("default");
  KVANT_ASSIGN(const double base, rope.PositiveOr("rope_theta", kBase));
  KVANT_ASSIGN(const float local_base, ReadWindowRopeBase(config, "local_rope_theta", kLocalBase));
  out.writer->AddF32(out.Key("rope.freq_base"), static_cast<float>(base));
  out.writer->AddF32(out.Key("rope.freq_base_swa"), local_base);
  if (shape.labels == 0) return {};
  KVANT_ASSIGN(const auto activation, config.String("classifier_activation"));
  if (activation.value_or("gelu") != "gelu") {
    return config.Wrong("classifier_activation", "gelu");
  }
  KVANT_ASSIGN(const auto pooling, config.String("classifier_pooling"));
  const bool is_mean = pooling.value_or("cls") == "mean";
  if (!is_mean && pooling.value_or("cls") != "cls") {
    return config.Wrong("classifier_pooling", "cls or mean");
  }
  out.writer->AddU32(out.Key("classifier.pooling_type"),
                     static_cast<uint32_t>(is_mean ? Pooling::kMean : Pooling::kCls));
  return {};
}

constexpr std::string_view kClasses[] = {"ModernBertModel", "ModernBertForMaskedLM"};
constexpr std::string_view kScoreClasses[] = {"ModernBertForSequenceClassification"};
constexpr std::string_view kHeads[] = {"head.", "decoder."};

constexpr HfFamily Row(std::span<const std::string_view> classes,
                       std::span<const HfTensor> tensors) {
  return {.classes = classes,
          .arch = kName,
          .activation = {.key = "hidden_activation", .names = kHfEncoderActivations},
          .epsilon = {.key = "norm_eps", .gguf_key = "attention.layer_norm_epsilon"},
          .outer_prefix = "model.",
          .own_rope_base = true,
          .window_ropes = true,
          .tensors = tensors,
          .add_parameters = AddParameters,
          .left_out = kHeads,
          .is_encoder = true};
}

constexpr HfFamily RowOfScores() {
  HfFamily row = Row(kScoreClasses, kWithScores);
  row.finish_shape = ReadHfLabels;
  row.left_out = {};
  return row;
}

constexpr HfFamily kHf[] = {Row(kClasses, kEncoder), RowOfScores()};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "ModernBERT", .read = Read, .hf = kHf};

}  // namespace kvant::arch::modern_bert
