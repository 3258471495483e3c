// Falcon, the first generation: attention and a feed-forward without gates beside each other, which
// read one layer norm or, in the large models, one each; in the models for research (RW), with
// ALiBi in place of a rotary embedding, one after the other. transformers keeps the query heads of
// a key with that key and its value.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::falcon {
namespace {

constexpr std::string_view kName = "falcon";
constexpr int64_t kContext = 2048;  // of the first models, which do not say it
constexpr float kMaxBias = 8.0f;    // of models with ALiBi

// The bias is added before the scores are scaled.
void SetSlopes(float max_bias, std::vector<Attention>& attentions) {
  for (Attention& attention : attentions) {
    attention.bias_slopes = AlibiSlopes(attention.heads, max_bias);
    for (float& slope : attention.bias_slopes) slope *= attention.scale;
  }
}

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_ASSIGN(const float max_bias, ReadMaxAlibiBias(metadata, 0));
  if (max_bias == 0) {
    KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  } else {
    SetSlopes(max_bias, attentions);
  }
  KVANT_ASSIGN(const auto ffns, ReadPlainFfns(metadata, stack, cpu::Activation::kGeluErf));
  // In a file with two norms, the first name is that of the feed-forward's norm.
  const bool two_norms = metadata.file().FindTensor("blk.0.attn_norm_2.weight") != nullptr;
  const bool sequential = metadata.file().FindTensor("blk.0.ffn_norm.weight") != nullptr;
  FillLayers(stack,
             {.before_attention = two_norms ? "attn_norm_2" : "attn_norm",
              .before_ffn = sequential ? "ffn_norm" : "attn_norm"},
             attentions, ffns);
  for (LayerSpec& layer : stack.layers) {
    layer.flow = sequential ? Flow::kSequential : Flow::kParallel;
  }
  return model;
}

constexpr std::string_view kClasses[] = {"FalconForCausalLM"};
constexpr std::string_view kActivations[] = {"gelu"};

constexpr auto kEnds = std::array{
    HfMatrix("transformer.word_embeddings.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    HfOutput("lm_head.weight").front(),
    HfNorm("transformer.ln_f.weight", "output_norm.weight").front(),
    HfBias("transformer.ln_f.bias", "output_norm.bias", Extent::kDim),
};

constexpr auto kMatrices = std::array{
    Grouped(HfMatrix("transformer.h.{}.self_attention.query_key_value.weight",
                     "blk.{}.attn_qkv.weight", Extent::kQkvRows, Extent::kDim)),
    Grouped(HfBias("transformer.h.{}.self_attention.query_key_value.bias", "blk.{}.attn_qkv.bias",
                   Extent::kQkvRows)),
    HfMatrix("transformer.h.{}.self_attention.dense.weight", "blk.{}.attn_output.weight",
             Extent::kDim, Extent::kQRows),
    HfBias("transformer.h.{}.self_attention.dense.bias", "blk.{}.attn_output.bias", Extent::kDim),
    HfMatrix("transformer.h.{}.mlp.dense_h_to_4h.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfBias("transformer.h.{}.mlp.dense_h_to_4h.bias", "blk.{}.ffn_up.bias", Extent::kFfn),
    HfMatrix("transformer.h.{}.mlp.dense_4h_to_h.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
    HfBias("transformer.h.{}.mlp.dense_4h_to_h.bias", "blk.{}.ffn_down.bias", Extent::kDim),
};

constexpr auto kNorms = std::array{
    HfOptional("transformer.h.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", Extent::kDim)
        .front(),
    HfBias("transformer.h.{}.input_layernorm.bias", "blk.{}.attn_norm.bias", Extent::kDim),
    HfOptional("transformer.h.{}.ln_mlp.weight", "blk.{}.attn_norm.weight", Extent::kDim).front(),
    HfBias("transformer.h.{}.ln_mlp.bias", "blk.{}.attn_norm.bias", Extent::kDim),
    HfOptional("transformer.h.{}.ln_attn.weight", "blk.{}.attn_norm_2.weight", Extent::kDim)
        .front(),
    HfBias("transformer.h.{}.ln_attn.bias", "blk.{}.attn_norm_2.bias", Extent::kDim),
};

constexpr auto kSequentialNorms = std::array{
    HfNorm("transformer.h.{}.input_layernorm.weight", "blk.{}.attn_norm.weight").front(),
    HfBias("transformer.h.{}.input_layernorm.bias", "blk.{}.attn_norm.bias", Extent::kDim),
    HfNorm("transformer.h.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight").front(),
    HfBias("transformer.h.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias", Extent::kDim),
};

constexpr auto kTensors = Join(kEnds, kNorms, kMatrices);
constexpr auto kSequentialTensors = Join(kEnds, kSequentialNorms, kMatrices);

bool IsSequential(const JsonObject& config) {
  const auto parallel = config.Bool("parallel_attn");
  const auto grouped = config.Bool("new_decoder_architecture");
  return parallel.ok() && grouped.ok() && !parallel->value_or(true) && !grouped->value_or(false);
}

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const auto grouped, config.Bool("new_decoder_architecture"));
  KVANT_ASSIGN(const auto multi_query, config.Bool("multi_query"));
  if (grouped.value_or(false)) {
    KVANT_ASSIGN(shape.kv_heads, config.Count("num_kv_heads", kHeadsMax));
  } else if (multi_query.value_or(true)) {
    shape.kv_heads = 1;
  }
  KVANT_ASSIGN(const auto ffn, config.Integer("ffn_hidden_size", kDimMax));
  shape.ffn = ffn.value_or(4 * shape.dim);
  KVANT_ASSIGN(const auto context, config.Integer("max_position_embeddings", kContextMax));
  shape.context = context.value_or(kContext);
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto alibi, config.Bool("alibi"));
  if (alibi.value_or(false)) {
    out.writer->AddF32(out.Key("attention.max_alibi_bias"), kMaxBias);
    return {};
  }
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily RowFor(bool (*is_of)(const JsonObject& config),
                          std::span<const HfTensor> tensors) {
  return {.classes = kClasses,
          .arch = kName,
          .is_of = is_of,
          .activation = {.key = "activation", .names = kActivations},
          .keys = {.ffn = "", .kv_heads = "", .context = ""},
          .epsilon = {.key = "layer_norm_epsilon", .gguf_key = "attention.layer_norm_epsilon"},
          .finish_shape = FinishShape,
          .optional_prefix = "transformer.",
          .tensors = tensors,
          .add_parameters = AddParameters};
}

constexpr HfFamily kHf[] = {RowFor(IsSequential, kSequentialTensors), RowFor(nullptr, kTensors)};

}  // namespace

extern const Family kFamily;
const Family kFamily = {
    .name = kName, .models = "Falcon 1 and 2", .read = Read, .hf = kHf, .mix = {.own_mix = true}};

}  // namespace kvant::arch::falcon
