// T5 (arXiv 1910.10683): RMS norms without a mean, no biases, a learned number for each distance in
// place of positions, scores that are not scaled; version 1.1 (Flan-T5, mT5, UMT5) with gated
// feed-forwards and an output of its own. UMT5 has such numbers in every layer.
#include <algorithm>
#include <string>

#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_encoder_decoder.h"

namespace kvant::arch::t5 {
namespace {

constexpr std::string_view kName = "t5";

constexpr int64_t kUsualContext = 512;  // of models whose config.json does not say it
constexpr int64_t kUsualBuckets = 32;   // likewise
constexpr int64_t kBucketsMax = 1 << 12;
constexpr int64_t kDistanceLimit = 1 << 16;

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderDecoder(
      metadata, {.norms = NormKind::kRms, .distances = true, .scale_tied_output = true});
}

constexpr auto kCommon = std::array{
    HfMatrix("shared.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    HfOutput("lm_head.weight").front(),
    HfNorm("encoder.final_layer_norm.weight", "enc.output_norm.weight").front(),
    HfNorm("decoder.final_layer_norm.weight", "dec.output_norm.weight").front(),
    HfNorm("encoder.block.{}.layer.0.layer_norm.weight", "enc.blk.{}.attn_norm.weight").front(),
    HfMatrix("encoder.block.{}.layer.0.SelfAttention.q.weight", "enc.blk.{}.attn_q.weight",
             Extent::kQRows, Extent::kDim),
    HfMatrix("encoder.block.{}.layer.0.SelfAttention.k.weight", "enc.blk.{}.attn_k.weight",
             Extent::kQRows, Extent::kDim),
    HfMatrix("encoder.block.{}.layer.0.SelfAttention.v.weight", "enc.blk.{}.attn_v.weight",
             Extent::kQRows, Extent::kDim),
    HfMatrix("encoder.block.{}.layer.0.SelfAttention.o.weight", "enc.blk.{}.attn_o.weight",
             Extent::kDim, Extent::kQRows),
    HfNorm("encoder.block.{}.layer.1.layer_norm.weight", "enc.blk.{}.ffn_norm.weight").front(),
    HfMatrix("encoder.block.{}.layer.1.DenseReluDense.wo.weight", "enc.blk.{}.ffn_down.weight",
             Extent::kDim, Extent::kFfn),
    HfNorm("decoder.block.{}.layer.0.layer_norm.weight", "dec.blk.{}.attn_norm.weight").front(),
    HfMatrix("decoder.block.{}.layer.0.SelfAttention.q.weight", "dec.blk.{}.attn_q.weight",
             Extent::kQRows, Extent::kDim),
    HfMatrix("decoder.block.{}.layer.0.SelfAttention.k.weight", "dec.blk.{}.attn_k.weight",
             Extent::kQRows, Extent::kDim),
    HfMatrix("decoder.block.{}.layer.0.SelfAttention.v.weight", "dec.blk.{}.attn_v.weight",
             Extent::kQRows, Extent::kDim),
    HfMatrix("decoder.block.{}.layer.0.SelfAttention.o.weight", "dec.blk.{}.attn_o.weight",
             Extent::kDim, Extent::kQRows),
    HfNorm("decoder.block.{}.layer.1.layer_norm.weight", "dec.blk.{}.cross_attn_norm.weight")
        .front(),
    HfMatrix("decoder.block.{}.layer.1.EncDecAttention.q.weight", "dec.blk.{}.cross_attn_q.weight",
             Extent::kQRows, Extent::kDim),
    HfMatrix("decoder.block.{}.layer.1.EncDecAttention.k.weight", "dec.blk.{}.cross_attn_k.weight",
             Extent::kQRows, Extent::kDim),
    HfMatrix("decoder.block.{}.layer.1.EncDecAttention.v.weight", "dec.blk.{}.cross_attn_v.weight",
             Extent::kQRows, Extent::kDim),
    HfMatrix("decoder.block.{}.layer.1.EncDecAttention.o.weight", "dec.blk.{}.cross_attn_o.weight",
             Extent::kDim, Extent::kQRows),
    HfNorm("decoder.block.{}.layer.2.layer_norm.weight", "dec.blk.{}.ffn_norm.weight").front(),
    HfMatrix("decoder.block.{}.layer.2.DenseReluDense.wo.weight", "dec.blk.{}.ffn_down.weight",
             Extent::kDim, Extent::kFfn),
};

constexpr auto kPlain = std::array{
    HfMatrix("encoder.block.{}.layer.1.DenseReluDense.wi.weight", "enc.blk.{}.ffn_up.weight",
             Extent::kFfn, Extent::kDim),
    HfMatrix("decoder.block.{}.layer.2.DenseReluDense.wi.weight", "dec.blk.{}.ffn_up.weight",
             Extent::kFfn, Extent::kDim),
};

constexpr auto kGated = std::array{
    HfMatrix("encoder.block.{}.layer.1.DenseReluDense.wi_0.weight", "enc.blk.{}.ffn_gate.weight",
             Extent::kFfn, Extent::kDim),
    HfMatrix("encoder.block.{}.layer.1.DenseReluDense.wi_1.weight", "enc.blk.{}.ffn_up.weight",
             Extent::kFfn, Extent::kDim),
    HfMatrix("decoder.block.{}.layer.2.DenseReluDense.wi_0.weight", "dec.blk.{}.ffn_gate.weight",
             Extent::kFfn, Extent::kDim),
    HfMatrix("decoder.block.{}.layer.2.DenseReluDense.wi_1.weight", "dec.blk.{}.ffn_up.weight",
             Extent::kFfn, Extent::kDim),
};

// Numbers of the distances: [buckets, heads] in the folder.
constexpr std::array<HfTensor, 2> Distances(InLayers layers) {
  std::array<HfTensor, 2> tensors = {
      HfMatrix("encoder.block.{}.layer.0.SelfAttention.relative_attention_bias.weight",
               "enc.blk.{}.attn_rel_b.weight", Extent::kBuckets, Extent::kHeads),
      HfMatrix("decoder.block.{}.layer.0.SelfAttention.relative_attention_bias.weight",
               "dec.blk.{}.attn_rel_b.weight", Extent::kBuckets, Extent::kHeads),
  };
  for (HfTensor& tensor : tensors) tensor.layers = layers;
  return tensors;
}

constexpr auto kPlainTensors = Join(kCommon, kPlain, Distances(InLayers::kFirst));
constexpr auto kGatedTensors = Join(kCommon, kGated, Distances(InLayers::kFirst));
constexpr auto kUmt5Tensors = Join(kCommon, kGated, Distances(InLayers::kAll));

constexpr std::string_view kEmbeddings[] = {"encoder.embed_tokens.weight",
                                            "decoder.embed_tokens.weight"};

constexpr std::string_view kFfnKey = "feed_forward_proj";
constexpr std::string_view kGatedBeginning = "gated-";

bool IsGated(const JsonObject& config) {
  const auto name = config.String(kFfnKey);
  return name.ok() && name->value_or("").starts_with(kGatedBeginning);
}

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(shape.head_dim, config.Count("d_kv", kHeadDimMax));
  KVANT_ASSIGN(const auto context, config.Integer("n_positions", kContextMax));
  shape.context = std::max<int64_t>(1, context.value_or(kUsualContext));
  KVANT_ASSIGN(const auto layers, config.Integer("num_decoder_layers", kLayersMax));
  shape.decoder = {layers.value_or(shape.layers), shape.heads, shape.ffn};
  KVANT_ASSIGN(const auto buckets, config.Integer("relative_attention_num_buckets", kBucketsMax));
  shape.buckets = buckets.value_or(kUsualBuckets);
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddHfDecoder(config, shape, out));
  const auto add = [&](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  add("attention.key_length", shape.head_dim);
  add("attention.value_length", shape.head_dim);
  add("attention.relative_buckets_count", shape.buckets);
  KVANT_ASSIGN(const auto distance,
               config.Integer("relative_attention_max_distance", kDistanceLimit));
  if (distance.has_value()) add("attention.relative_distance_max", *distance);
  // The two usual activations need no key.
  KVANT_ASSIGN(const auto ffn, config.String(kFfnKey));
  std::string name = ffn.value_or("relu");
  if (name.starts_with(kGatedBeginning)) name.erase(0, kGatedBeginning.size());
  const bool usual = !ffn.has_value() || name == (IsGated(config) ? "gelu" : "relu");
  if (!usual) out.writer->AddString(out.Key("hidden_act"), name);
  return {};
}

constexpr HfKeys kKeys = {.layers = "num_layers",
                          .dim = "d_model",
                          .ffn = "d_ff",
                          .heads = "num_heads",
                          .kv_heads = "",
                          .context = ""};
constexpr HfEpsilon kEpsilon = {.key = "layer_norm_epsilon", .otherwise = 1e-6};

constexpr std::string_view kClasses[] = {"T5ForConditionalGeneration", "T5WithLMHeadModel"};
constexpr std::string_view kMt5Classes[] = {"MT5ForConditionalGeneration"};
constexpr std::string_view kUmt5Classes[] = {"UMT5ForConditionalGeneration"};
constexpr std::string_view kPlainNames[] = {"relu", "gelu", "gelu_new", "silu"};
constexpr std::string_view kGatedNames[] = {"gated-gelu", "gated-silu"};

constexpr HfFamily Row(std::span<const std::string_view> classes,
                       std::span<const std::string_view> activations,
                       std::span<const HfTensor> tensors) {
  return {
      .classes = classes,
      .arch = kName,
      .activation = {.key = kFfnKey, .names = activations},
      .keys = kKeys,
      .epsilon = kEpsilon,
      .finish_shape = FinishShape,
      .rope_base = 0,
      .tensors = tensors,
      .add_parameters = AddParameters,
      .embedding_names = kEmbeddings,
      .tied_unless_told = true,
  };
}

constexpr HfFamily Only(HfFamily row, bool (*is_of)(const JsonObject&)) {
  row.is_of = is_of;
  return row;
}

constexpr HfFamily kHf[] = {
    Only(Row(kClasses, kGatedNames, kGatedTensors), IsGated),
    Row(kClasses, kPlainNames, kPlainTensors),
    Row(kMt5Classes, kGatedNames, kGatedTensors),
    Row(kUmt5Classes, kGatedNames, kUmt5Tensors),
};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "T5, Flan-T5, mT5, UMT5", .read = Read, .hf = kHf};

}  // namespace kvant::arch::t5
