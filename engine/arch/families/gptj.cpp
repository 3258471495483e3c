// GPT-J: attention and feed-forward stand beside each other behind one norm that subtracts the
// mean, the first dimensions of each head are rotated in neighbouring pairs, and the output has a
// bias.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_gpt2_names.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::gptj {
namespace {

constexpr std::string_view kName = "gptj";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadPlainFfns(metadata, stack, cpu::Activation::kGeluTanh));
  FillLayers(stack, {.before_ffn = "attn_norm"}, attentions, ffns);
  for (LayerSpec& layer : stack.layers) layer.flow = Flow::kParallel;
  return model;
}

constexpr std::string_view kClasses[] = {"GPTJForCausalLM"};

constexpr auto kTensors = std::array{
    HfMatrix("transformer.wte.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    HfNorm("transformer.ln_f.weight", "output_norm.weight").front(),
    HfBias("transformer.ln_f.bias", "output_norm.bias", Extent::kDim),
    HfOutput("lm_head.weight").front(),
    HfBias("lm_head.bias", "output.bias", Extent::kVocab),
    HfNorm("transformer.h.{}.ln_1.weight", "blk.{}.attn_norm.weight").front(),
    HfBias("transformer.h.{}.ln_1.bias", "blk.{}.attn_norm.bias", Extent::kDim),
    HfMatrix("transformer.h.{}.attn.q_proj.weight", "blk.{}.attn_q.weight", Extent::kQRows,
             Extent::kDim),
    HfMatrix("transformer.h.{}.attn.k_proj.weight", "blk.{}.attn_k.weight", Extent::kKvRows,
             Extent::kDim),
    HfMatrix("transformer.h.{}.attn.v_proj.weight", "blk.{}.attn_v.weight", Extent::kKvRows,
             Extent::kDim),
    HfMatrix("transformer.h.{}.attn.out_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kQRows),
    HfMatrix("transformer.h.{}.mlp.fc_in.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfBias("transformer.h.{}.mlp.fc_in.bias", "blk.{}.ffn_up.bias", Extent::kFfn),
    HfMatrix("transformer.h.{}.mlp.fc_out.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
    HfBias("transformer.h.{}.mlp.fc_out.bias", "blk.{}.ffn_down.bias", Extent::kDim),
};

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const int64_t rotated, config.Count("rotary_dim", shape.head_dim));
  if (rotated % 2 != 0) return config.Wrong("rotary_dim", "an even number");
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(rotated));
  return {};
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kHfGpt2Activation,
    .keys = kHfGpt2Keys,
    .epsilon = kHfGpt2Epsilon,
    .finish_shape = ReadHfGpt2Width,
    .optional_prefix = "transformer.",
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "GPT-J", .read = Read, .hf = kHf};

}  // namespace kvant::arch::gptj
