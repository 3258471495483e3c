// Falcon, the first generation: attention and a feed-forward without gates beside each other, which
// read one layer norm or, in the large models, one each. transformers keeps the query heads of a
// key with that key and its value.
#include "base/result.h"
#include "cpu/kernels.h"
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

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadPlainFfns(metadata, stack, cpu::Activation::kGeluErf));
  // With two norms, the first name is that of the feed-forward's.
  const bool two_norms = metadata.file().FindTensor("blk.0.attn_norm_2.weight") != nullptr;
  FillLayers(
      stack,
      {.before_attention = two_norms ? "attn_norm_2" : "attn_norm", .before_ffn = "attn_norm"},
      attentions, ffns);
  for (LayerSpec& layer : stack.layers) layer.flow = Flow::kParallel;
  return model;
}

constexpr std::string_view kClasses[] = {"FalconForCausalLM"};
constexpr std::string_view kActivations[] = {"gelu"};

constexpr auto kTensors = std::array{
    HfMatrix("transformer.word_embeddings.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    HfOutput("lm_head.weight").front(),
    HfNorm("transformer.ln_f.weight", "output_norm.weight").front(),
    HfBias("transformer.ln_f.bias", "output_norm.bias", Extent::kDim),
    Grouped(HfMatrix("transformer.h.{}.self_attention.query_key_value.weight",
                     "blk.{}.attn_qkv.weight", Extent::kQkvRows, Extent::kDim)),
    HfOptional("transformer.h.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", Extent::kDim)
        .front(),
    HfBias("transformer.h.{}.input_layernorm.bias", "blk.{}.attn_norm.bias", Extent::kDim),
    HfOptional("transformer.h.{}.ln_mlp.weight", "blk.{}.attn_norm.weight", Extent::kDim).front(),
    HfBias("transformer.h.{}.ln_mlp.bias", "blk.{}.attn_norm.bias", Extent::kDim),
    HfOptional("transformer.h.{}.ln_attn.weight", "blk.{}.attn_norm_2.weight", Extent::kDim)
        .front(),
    HfBias("transformer.h.{}.ln_attn.bias", "blk.{}.attn_norm_2.bias", Extent::kDim),
    HfMatrix("transformer.h.{}.self_attention.dense.weight", "blk.{}.attn_output.weight",
             Extent::kDim, Extent::kQRows),
    HfMatrix("transformer.h.{}.mlp.dense_h_to_4h.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfMatrix("transformer.h.{}.mlp.dense_4h_to_h.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
};

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
  KVANT_TRY(RefuseTrue(config, "alibi"));
  KVANT_TRY(RefuseTrue(config, "bias"));
  KVANT_ASSIGN(const auto parallel, config.Bool("parallel_attn"));
  KVANT_ASSIGN(const auto grouped, config.Bool("new_decoder_architecture"));
  if (!parallel.value_or(true) && !grouped.value_or(false)) {
    return MakeError(ErrorCode::kNotSupported, "{}: false is not supported",
                     config.Where("parallel_attn"));
  }
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "activation", .names = kActivations},
    .keys = {.ffn = "", .kv_heads = "", .context = ""},
    .epsilon = {.key = "layer_norm_epsilon", .gguf_key = "attention.layer_norm_epsilon"},
    .finish_shape = FinishShape,
    .optional_prefix = "transformer.",
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {
    .name = kName, .models = "Falcon 1 and 2", .read = Read, .hf = kHf, .mix = {.own_mix = true}};

}  // namespace kvant::arch::falcon
