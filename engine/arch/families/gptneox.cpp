// GPT-NeoX, Pythia: layer norms, a feed-forward without gates, biases, and a rotary embedding over
// a part of each head. In most models attention and feed-forward stand beside each other, each with
// a norm of its own. transformers keeps query, key and value of a head together.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::gptneox {
namespace {

constexpr std::string_view kName = "gptneox";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(const auto parallel, metadata.file().GetBool(metadata.Key("use_parallel_residual")));
  if (!parallel.has_value()) return metadata.Missing("use_parallel_residual");
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadPlainFfns(metadata, stack, cpu::Activation::kGeluErf));
  FillLayers(stack, {}, attentions, ffns);
  for (LayerSpec& layer : stack.layers) {
    layer.flow = *parallel ? Flow::kParallel : Flow::kSequential;
  }
  return model;
}

constexpr std::string_view kClasses[] = {"GPTNeoXForCausalLM"};
constexpr std::string_view kActivations[] = {"gelu"};

constexpr auto kTensors = std::array{
    HfMatrix("gpt_neox.embed_in.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    HfOutput("embed_out.weight").front(),
    HfNorm("gpt_neox.final_layer_norm.weight", "output_norm.weight").front(),
    HfBias("gpt_neox.final_layer_norm.bias", "output_norm.bias", Extent::kDim),
    HfNorm("gpt_neox.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight").front(),
    HfBias("gpt_neox.layers.{}.input_layernorm.bias", "blk.{}.attn_norm.bias", Extent::kDim),
    Grouped(HfMatrix("gpt_neox.layers.{}.attention.query_key_value.weight",
                     "blk.{}.attn_qkv.weight", Extent::kQkvRows, Extent::kDim)),
    Grouped(HfBias("gpt_neox.layers.{}.attention.query_key_value.bias", "blk.{}.attn_qkv.bias",
                   Extent::kQkvRows)),
    HfMatrix("gpt_neox.layers.{}.attention.dense.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kQRows),
    HfBias("gpt_neox.layers.{}.attention.dense.bias", "blk.{}.attn_output.bias", Extent::kDim),
    HfNorm("gpt_neox.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight").front(),
    HfBias("gpt_neox.layers.{}.post_attention_layernorm.bias", "blk.{}.ffn_norm.bias",
           Extent::kDim),
    HfMatrix("gpt_neox.layers.{}.mlp.dense_h_to_4h.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfBias("gpt_neox.layers.{}.mlp.dense_h_to_4h.bias", "blk.{}.ffn_up.bias", Extent::kFfn),
    HfMatrix("gpt_neox.layers.{}.mlp.dense_4h_to_h.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
    HfBias("gpt_neox.layers.{}.mlp.dense_4h_to_h.bias", "blk.{}.ffn_down.bias", Extent::kDim),
};

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto parallel, config.Bool("use_parallel_residual"));
  out.writer->AddBool(out.Key("use_parallel_residual"), parallel.value_or(true));
  KVANT_ASSIGN(const int64_t n_rot, AddPartialRotation(config, shape, out));
  return AddRopeScaling(config, shape, n_rot, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "hidden_act", .names = kActivations},
    .epsilon = kLayerNormEpsilon,
    .rope_share = 0.25,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "GPT-NeoX, Pythia", .read = Read, .hf = kHf};

}  // namespace kvant::arch::gptneox
