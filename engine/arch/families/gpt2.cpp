// GPT-2: layer norms, a feed-forward without gates, biases everywhere, and learned positions
// instead of a rotary embedding. transformers stores the matrices of its layers transposed.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/decoder.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hidden_activation.h"

namespace kvant::arch::gpt2 {

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_ASSIGN(const auto activation,
               ReadHiddenActivation(metadata, cpu::Activation::kGeluTanh, "hidden_activation"));
  KVANT_ASSIGN(const auto ffns, ReadPlainFfns(metadata, stack, activation));
  stack.input.positions = "position_embd";
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

namespace {

constexpr std::string_view kName = "gpt2";

constexpr std::string_view kClasses[] = {"GPT2LMHeadModel"};
constexpr std::string_view kGeluTanhNames[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"};

constexpr HfTensor Transposed(std::string_view hf_name, std::string_view gguf_name, Extent rows,
                              Extent columns) {
  HfTensor tensor = HfMatrix(hf_name, gguf_name, rows, columns);
  tensor.order = RowOrder::kTransposed;
  return tensor;
}

constexpr auto kTensors = std::array{
    HfMatrix("transformer.wte.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    HfMatrix("transformer.wpe.weight", "position_embd.weight", Extent::kContext, Extent::kDim),
    HfOutput("lm_head.weight").front(),
    HfNorm("transformer.ln_f.weight", "output_norm.weight").front(),
    HfBias("transformer.ln_f.bias", "output_norm.bias", Extent::kDim),
    HfNorm("transformer.h.{}.ln_1.weight", "blk.{}.attn_norm.weight").front(),
    HfBias("transformer.h.{}.ln_1.bias", "blk.{}.attn_norm.bias", Extent::kDim),
    Transposed("transformer.h.{}.attn.c_attn.weight", "blk.{}.attn_qkv.weight", Extent::kQkvRows,
               Extent::kDim),
    HfBias("transformer.h.{}.attn.c_attn.bias", "blk.{}.attn_qkv.bias", Extent::kQkvRows),
    Transposed("transformer.h.{}.attn.c_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
               Extent::kQRows),
    HfBias("transformer.h.{}.attn.c_proj.bias", "blk.{}.attn_output.bias", Extent::kDim),
    HfNorm("transformer.h.{}.ln_2.weight", "blk.{}.ffn_norm.weight").front(),
    HfBias("transformer.h.{}.ln_2.bias", "blk.{}.ffn_norm.bias", Extent::kDim),
    Transposed("transformer.h.{}.mlp.c_fc.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
               Extent::kDim),
    HfBias("transformer.h.{}.mlp.c_fc.bias", "blk.{}.ffn_up.bias", Extent::kFfn),
    Transposed("transformer.h.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight", Extent::kDim,
               Extent::kFfn),
    HfBias("transformer.h.{}.mlp.c_proj.bias", "blk.{}.ffn_down.bias", Extent::kDim),
};

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const auto ffn, config.Integer("n_inner", kDimMax));
  shape.ffn = ffn.value_or(4 * shape.dim);
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape&, Parameters&) {
  return RefuseTrue(config, "scale_attn_by_inverse_layer_idx");
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "activation_function", .names = kGeluTanhNames},
    .keys = {.layers = "n_layer",
             .dim = "n_embd",
             .ffn = "",
             .heads = "n_head",
             .kv_heads = "",
             .context = "n_positions"},
    .epsilon = {.key = "layer_norm_epsilon", .gguf_key = "attention.layer_norm_epsilon"},
    .finish_shape = FinishShape,
    .optional_prefix = "transformer.",
    .rope_base = 0,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "GPT-2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::gpt2
