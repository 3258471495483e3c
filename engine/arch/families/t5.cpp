// T5 (arXiv 1910.10683): RMS norms without a mean, no biases, a learned number for each distance in
// place of positions, scores that are not scaled; version 1.1 (Flan-T5, mT5, UMT5) with gated
// feed-forwards and an output of its own. UMT5 has such numbers in every layer.
#include <cmath>
#include <cstdlib>

#include "base/result.h"
#include "engine/arch/encoder_decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_t5.h"

namespace kvant::arch::t5 {
namespace {

constexpr std::string_view kName = "t5";

constexpr int kMajorWithoutScale = 5;  // of transformers, for mT5

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadEncoderDecoder(
      metadata, {.norms = NormKind::kRms, .distances = true, .scale_tied_output = true});
}

constexpr auto kEnds = Join(kHfT5Embedding, HfOutput("lm_head.weight"));

constexpr auto kDecoder = std::array{
    HfNorm("decoder.final_layer_norm.weight", "dec.output_norm.weight").front(),
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

constexpr auto kPlainDecoder = std::array{
    HfMatrix("decoder.block.{}.layer.2.DenseReluDense.wi.weight", "dec.blk.{}.ffn_up.weight",
             Extent::kFfn, Extent::kDim),
};

constexpr auto kGatedDecoder = std::array{
    HfMatrix("decoder.block.{}.layer.2.DenseReluDense.wi_0.weight", "dec.blk.{}.ffn_gate.weight",
             Extent::kFfn, Extent::kDim),
    HfMatrix("decoder.block.{}.layer.2.DenseReluDense.wi_1.weight", "dec.blk.{}.ffn_up.weight",
             Extent::kFfn, Extent::kDim),
};

constexpr auto Distances(InLayers layers) {
  return Join(HfT5EncoderDistances(layers),
              HfT5Distances("decoder.block.{}.layer.0.SelfAttention.relative_attention_bias.weight",
                            "dec.blk.{}.attn_rel_b.weight", layers));
}

constexpr auto kCommon = Join(kEnds, kHfT5Encoder, kDecoder);
constexpr auto kPlainTensors =
    Join(kCommon, kHfT5PlainEncoder, kPlainDecoder, Distances(InLayers::kFirst));
constexpr auto kGated = Join(kCommon, kHfT5GatedEncoder, kGatedDecoder);
constexpr auto kGatedTensors = Join(kGated, Distances(InLayers::kFirst));
constexpr auto kUmt5Tensors = Join(kGated, Distances(InLayers::kAll));

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(FinishHfT5Shape(config, shape));
  KVANT_ASSIGN(const auto layers, config.Integer("num_decoder_layers", kLayersMax));
  shape.decoder = {layers.value_or(shape.layers), shape.heads, shape.ffn};
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddHfDecoder(config, shape, out));
  return AddHfT5Parameters(config, shape, out);
}

// Whether the last rows are divided by the root of their width: in transformers 4 where the output
// is the embedding, in version 5 where a setting of its own says so. mT5 has no such setting.
enum class OutputScale : uint8_t { kNone, kRootOfWidth };

Result<OutputScale> ScaleOfOutput(const JsonObject& config) {
  KVANT_ASSIGN(const auto scaled, config.Bool("scale_decoder_outputs"));
  KVANT_ASSIGN(const auto tied, config.Bool("tie_word_embeddings"));
  const bool is_scaled = scaled.value_or(tied.value_or(true));
  return is_scaled ? OutputScale::kRootOfWidth : OutputScale::kNone;
}

Result<OutputScale> ScaleOfMt5Output(const JsonObject& config) {
  KVANT_ASSIGN(const auto version, config.String("transformers_version"));
  const int major = std::atoi(version.value_or("").c_str());
  return major < kMajorWithoutScale ? ScaleOfOutput(config)
                                    : Result<OutputScale>(OutputScale::kNone);
}

// Readers scale where the output is the embedding, and only there. What the model does otherwise is
// in the weights of an output of its own.
Result<std::vector<RowFactor>> FactorsOfOutput(OutputScale scale, const HfShape& shape,
                                               std::string_view gguf_name, HfOutputIs output) {
  const bool scaled = scale == OutputScale::kRootOfWidth;
  const bool scaled_by_readers = output == HfOutputIs::kEmbedding;
  if (gguf_name != kOutputName || scaled == scaled_by_readers) return std::vector<RowFactor>();
  const float factor = scaled ? 1.0f / std::sqrt(static_cast<float>(shape.dim)) : 1.0f;
  return std::vector<RowFactor>{{shape.vocab, factor}};
}

Result<std::vector<RowFactor>> FactorsOf(const JsonObject& config, const HfShape& shape,
                                         std::string_view gguf_name, HfOutputIs output) {
  KVANT_ASSIGN(const OutputScale scale, ScaleOfOutput(config));
  return FactorsOfOutput(scale, shape, gguf_name, output);
}

Result<std::vector<RowFactor>> FactorsOfMt5(const JsonObject& config, const HfShape& shape,
                                            std::string_view gguf_name, HfOutputIs output) {
  KVANT_ASSIGN(const OutputScale scale, ScaleOfMt5Output(config));
  return FactorsOfOutput(scale, shape, gguf_name, output);
}

constexpr std::string_view kClasses[] = {"T5ForConditionalGeneration", "T5WithLMHeadModel"};
constexpr std::string_view kMt5Classes[] = {"MT5ForConditionalGeneration"};
constexpr std::string_view kUmt5Classes[] = {"UMT5ForConditionalGeneration"};

constexpr HfFamily Row(std::span<const std::string_view> classes,
                       std::span<const std::string_view> activations,
                       std::span<const HfTensor> tensors) {
  HfFamily row = HfT5Family(kName, classes, activations, tensors);
  row.finish_shape = FinishShape;
  row.add_parameters = AddParameters;
  row.row_factors = FactorsOf;
  return row;
}

constexpr HfFamily Mt5Row() {
  HfFamily row = Row(kMt5Classes, kHfT5GatedNames, kGatedTensors);
  row.row_factors = FactorsOfMt5;
  return row;
}

constexpr HfFamily kHf[] = {
    OnlyIf(Row(kClasses, kHfT5GatedNames, kGatedTensors), IsGatedHfT5),
    Row(kClasses, kHfT5PlainNames, kPlainTensors),
    Mt5Row(),
    Row(kUmt5Classes, kHfT5GatedNames, kUmt5Tensors),
};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "T5, Flan-T5, mT5, UMT5", .read = Read, .hf = kHf};

}  // namespace kvant::arch::t5
