// Llama 1 to 3 and Mistral. transformers turns pairs of half-heads, the GGUF architecture "llama"
// neighbouring pairs, so the rows of q and k change places.
#include <array>

#include "engine/convert/hf_family.h"
#include "engine/convert/rope_scaling.h"

namespace kvant::convert {

extern const HfFamily kHfLlama;

namespace {

constexpr std::string_view kClasses[] = {"LlamaForCausalLM", "MistralForCausalLM"};

constexpr auto kInterleaved = RowOrder::kPairsInterleaved;
constexpr auto kSame = RowOrder::kSame;

constexpr HfTensor kTensors[] = {
    {"model.embed_tokens.weight", kEmbeddingName, Extent::kVocab, Extent::kDim},
    {"model.norm.weight", "output_norm.weight", Extent::kDim},
    {"lm_head.weight", kOutputName, Extent::kVocab, Extent::kDim, kSame, Presence::kUnlessTied},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", Extent::kDim},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", Extent::kQRows,
     Extent::kDim, kInterleaved},
    {"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", Extent::kQRows, Extent::kNone,
     kInterleaved, Presence::kOptional},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", Extent::kKvRows,
     Extent::kDim, kInterleaved},
    {"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", Extent::kKvRows, Extent::kNone,
     kInterleaved, Presence::kOptional},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", Extent::kKvRows,
     Extent::kDim},
    {"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", Extent::kKvRows, Extent::kNone,
     kSame, Presence::kOptional},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
     Extent::kQRows},
    {"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", Extent::kDim,
     Extent::kNone, kSame, Presence::kOptional},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", Extent::kDim},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight", Extent::kFfn, Extent::kDim},
    {"model.layers.{}.mlp.gate_proj.bias", "blk.{}.ffn_gate.bias", Extent::kFfn, Extent::kNone,
     kSame, Presence::kOptional},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight", Extent::kFfn, Extent::kDim},
    {"model.layers.{}.mlp.up_proj.bias", "blk.{}.ffn_up.bias", Extent::kFfn, Extent::kNone, kSame,
     Presence::kOptional},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight", Extent::kDim, Extent::kFfn},
    {"model.layers.{}.mlp.down_proj.bias", "blk.{}.ffn_down.bias", Extent::kDim, Extent::kNone,
     kSame, Presence::kOptional},
};

Status AddRope(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto scaling, ReadRopeScaling(config));
  if (!scaling) return {};
  if (scaling->type == "linear") return AddLinearScaling(*scaling, out);
  if (scaling->type != "llama3") return scaling->Unsupported("default, linear, llama3");
  KVANT_ASSIGN(const float base, ReadRopeBase(config, kHfLlama.rope_base));
  KVANT_ASSIGN(auto factors, Llama3Factors(*scaling, config, base, shape.head_dim));
  out.tensors.push_back({"rope_freqs.weight", std::move(factors)});
  return {};
}

Status AddLlamaParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  // Mistral's window; other engines ignore the key and attend to everything.
  KVANT_ASSIGN(const auto window, config.Integer("sliding_window", INT32_MAX));
  if (window.value_or(0) > 0) {
    out.writer->AddU32(out.Key("attention.sliding_window"), static_cast<uint32_t>(*window));
  }
  return AddRope(config, shape, out);
}

}  // namespace

const HfFamily kHfLlama = {
    .classes = kClasses,
    .arch = "llama",
    .activation = kSiluActivation,
    .tensors = kTensors,
    .add_parameters = AddLlamaParameters,
};

}  // namespace kvant::convert
