// EXAONE 3, 3.5 and Deep: the layer of Qwen 2 without biases. Folders have names like those of
// GPT-2.
#include "base/result.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"

namespace kvant::arch::exaone {
namespace {

constexpr std::string_view kName = "exaone";
constexpr double kBase = 500000.0;

constexpr std::string_view kClasses[] = {"ExaoneForCausalLM"};

constexpr auto kTensors = std::array{
    HfMatrix("transformer.wte.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    HfNorm("transformer.ln_f.weight", "output_norm.weight").front(),
    HfOutput("lm_head.weight").front(),
    HfNorm("transformer.h.{}.ln_1.weight", "blk.{}.attn_norm.weight").front(),
    HfMatrix("transformer.h.{}.attn.attention.q_proj.weight", "blk.{}.attn_q.weight",
             Extent::kQRows, Extent::kDim),
    HfMatrix("transformer.h.{}.attn.attention.k_proj.weight", "blk.{}.attn_k.weight",
             Extent::kKvRows, Extent::kDim),
    HfMatrix("transformer.h.{}.attn.attention.v_proj.weight", "blk.{}.attn_v.weight",
             Extent::kKvRows, Extent::kDim),
    HfMatrix("transformer.h.{}.attn.attention.out_proj.weight", "blk.{}.attn_output.weight",
             Extent::kDim, Extent::kQRows),
    HfNorm("transformer.h.{}.ln_2.weight", "blk.{}.ffn_norm.weight").front(),
    HfMatrix("transformer.h.{}.mlp.c_fc_0.weight", "blk.{}.ffn_gate.weight", Extent::kFfn,
             Extent::kDim),
    HfMatrix("transformer.h.{}.mlp.c_fc_1.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfMatrix("transformer.h.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
};

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "activation_function", .names = kSiluNames},
    .keys = {.layers = "num_layers"},
    .epsilon = {.key = "layer_norm_epsilon"},
    .rope_base = kBase,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "EXAONE 3", .read = qwen2::Read, .hf = kHf};

}  // namespace kvant::arch::exaone
