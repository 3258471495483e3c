// BLOOM: layer norms, also of the embedding, a feed-forward without gates, biases everywhere, and
// scores that fall with the distance (ALiBi) instead of a rotary embedding. transformers keeps
// query, key and value of a head together.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch::bloom {
namespace {

constexpr std::string_view kName = "bloom";
constexpr float kMaxBias = 8.0f;
constexpr int64_t kContext = 2048;  // of the released models, which need not say it

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_ASSIGN(const auto ffns, ReadPlainFfns(metadata, stack, cpu::Activation::kGeluTanh));
  for (Attention& attention : attentions) {
    attention.bias_slopes = AlibiSlopes(attention.heads, kMaxBias);
  }
  stack.input.norm = {NormKind::kLayer, "token_embd_norm", stack.final_norm.epsilon};
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"BloomForCausalLM"};

constexpr auto kTensors = std::array{
    HfMatrix("transformer.word_embeddings.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    HfOutput("lm_head.weight").front(),
    HfNorm("transformer.word_embeddings_layernorm.weight", "token_embd_norm.weight").front(),
    HfBias("transformer.word_embeddings_layernorm.bias", "token_embd_norm.bias", Extent::kDim),
    HfNorm("transformer.ln_f.weight", "output_norm.weight").front(),
    HfBias("transformer.ln_f.bias", "output_norm.bias", Extent::kDim),
    HfNorm("transformer.h.{}.input_layernorm.weight", "blk.{}.attn_norm.weight").front(),
    HfBias("transformer.h.{}.input_layernorm.bias", "blk.{}.attn_norm.bias", Extent::kDim),
    Grouped(HfMatrix("transformer.h.{}.self_attention.query_key_value.weight",
                     "blk.{}.attn_qkv.weight", Extent::kQkvRows, Extent::kDim)),
    Grouped(HfBias("transformer.h.{}.self_attention.query_key_value.bias", "blk.{}.attn_qkv.bias",
                   Extent::kQkvRows)),
    HfMatrix("transformer.h.{}.self_attention.dense.weight", "blk.{}.attn_output.weight",
             Extent::kDim, Extent::kQRows),
    HfBias("transformer.h.{}.self_attention.dense.bias", "blk.{}.attn_output.bias", Extent::kDim),
    HfNorm("transformer.h.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight").front(),
    HfBias("transformer.h.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias", Extent::kDim),
    HfMatrix("transformer.h.{}.mlp.dense_h_to_4h.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfBias("transformer.h.{}.mlp.dense_h_to_4h.bias", "blk.{}.ffn_up.bias", Extent::kFfn),
    HfMatrix("transformer.h.{}.mlp.dense_4h_to_h.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
    HfBias("transformer.h.{}.mlp.dense_4h_to_h.bias", "blk.{}.ffn_down.bias", Extent::kDim),
};

Status FinishShape(const JsonObject& config, HfShape& shape) {
  shape.ffn = 4 * shape.dim;
  KVANT_ASSIGN(const auto context, config.Integer("seq_length", kContextMax));
  shape.context = context.value_or(kContext);
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape&, Parameters&) {
  return RefuseTrue(config, "apply_residual_connection_post_layernorm");
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .keys = {.layers = "n_layer", .ffn = "", .heads = "n_head", .kv_heads = "", .context = ""},
    .epsilon = {.key = "layer_norm_epsilon", .gguf_key = "attention.layer_norm_epsilon"},
    .finish_shape = FinishShape,
    .optional_prefix = "transformer.",
    .rope_base = 0,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "BLOOM", .read = Read, .hf = kHf};

}  // namespace kvant::arch::bloom
