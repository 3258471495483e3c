// RWKV 7 ("Goose"): recurrent layers alone, each a time mix and a channel mix.
#include <cmath>

#include "base/result.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_rwkv.h"

namespace kvant::arch::rwkv7 {
namespace {

constexpr std::string_view kName = "rwkv7";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(Rwkv7Mix mix, ReadRwkv7Mix(metadata, stack.dim));
  KVANT_ASSIGN(const auto channels, ReadChannelMixes(metadata, stack, Receptance::kNo));
  const float epsilon = stack.final_norm.epsilon;
  stack.input.norm = {NormKind::kLayer, "token_embd_norm", epsilon};
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    mix.first = i == 0;
    stack.layers[i].sublayers = {{Norm{NormKind::kLayer, "attn_norm", epsilon}, mix},
                                 {Norm{NormKind::kLayer, "attn_norm_2", epsilon}, channels[i]}};
  }
  return model;
}

constexpr std::string_view kClasses[] = {"RWKV7ForCausalLM"};
constexpr std::string_view kActivations[] = {"sqrelu"};

// A product in two steps; the second has a bias where the GGUF architecture has a vector.
constexpr std::array<HfTensor, 2> Steps(std::string_view first, std::string_view second,
                                        std::string_view gguf_first, std::string_view gguf_second,
                                        Extent rank, InLayers layers = InLayers::kAll) {
  return {{{.hf_name = first,
            .gguf_name = gguf_first,
            .rows = rank,
            .columns = Extent::kDim,
            .layers = layers},
           {.hf_name = second,
            .gguf_name = gguf_second,
            .rows = Extent::kDim,
            .columns = rank,
            .layers = layers}}};
}

// Other engines want the mix of values in the first layer too, where nothing reads it.
constexpr auto kUnusedMix =
    Join(Steps("model.layers.{}.attn.a_lora.lora.0.weight",
               "model.layers.{}.attn.a_lora.lora.2.weight", "blk.{}.time_mix_v1.weight",
               "blk.{}.time_mix_v2.weight", Extent::kRateRank, InLayers::kFirst),
         std::array<HfTensor, 1>{{{.hf_name = "model.layers.{}.attn.a_lora.lora.2.bias",
                                   .gguf_name = "blk.{}.time_mix_v0.weight",
                                   .rows = Extent::kDim,
                                   .layers = InLayers::kFirst}}});

constexpr auto kTimeMix = Join(
    std::array<HfTensor, 11>{{
        HfLetters("model.layers.{}.attn.x_{}", "blk.{}.time_mix_lerp_fused.weight", "rwkvag"),
        HfVector("model.layers.{}.attn.k_k", "blk.{}.time_mix_k_k.weight"),
        HfVector("model.layers.{}.attn.k_a", "blk.{}.time_mix_k_a.weight"),
        {.hf_name = "model.layers.{}.attn.r_k",
         .gguf_name = "blk.{}.time_mix_r_k.weight",
         .rows = Extent::kWkvHeads,
         .columns = Extent::kWkvHeadDim,
         .experts = ExpertForm::kFlattened},
        HfSquare("model.layers.{}.attn.r_proj.weight", "blk.{}.time_mix_receptance.weight"),
        HfSquare("model.layers.{}.attn.k_proj.weight", "blk.{}.time_mix_key.weight"),
        HfSquare("model.layers.{}.attn.v_proj.weight", "blk.{}.time_mix_value.weight"),
        HfSquare("model.layers.{}.attn.o_proj.weight", "blk.{}.time_mix_output.weight"),
        HfVector("model.layers.{}.attn.w_lora.lora.2.bias", "blk.{}.time_mix_w0.weight"),
        HfVector("model.layers.{}.attn.a_lora.lora.2.bias", "blk.{}.time_mix_a0.weight"),
        {.hf_name = "model.layers.{}.attn.v_lora.lora.2.bias",
         .gguf_name = "blk.{}.time_mix_v0.weight",
         .rows = Extent::kDim,
         .layers = InLayers::kAllButFirst},
    }},
    Steps("model.layers.{}.attn.w_lora.lora.0.weight", "model.layers.{}.attn.w_lora.lora.2.weight",
          "blk.{}.time_mix_w1.weight", "blk.{}.time_mix_w2.weight", Extent::kDecayRank),
    Steps("model.layers.{}.attn.a_lora.lora.0.weight", "model.layers.{}.attn.a_lora.lora.2.weight",
          "blk.{}.time_mix_a1.weight", "blk.{}.time_mix_a2.weight", Extent::kRateRank),
    Steps("model.layers.{}.attn.v_lora.lora.0.weight", "model.layers.{}.attn.v_lora.lora.2.weight",
          "blk.{}.time_mix_v1.weight", "blk.{}.time_mix_v2.weight", Extent::kValueRank,
          InLayers::kAllButFirst),
    Steps("model.layers.{}.attn.g_lora.lora.0.weight", "model.layers.{}.attn.g_lora.lora.2.weight",
          "blk.{}.time_mix_g1.weight", "blk.{}.time_mix_g2.weight", Extent::kGateRank));

constexpr auto kTensors = Join(
    HfEmbedding("model.embeddings.weight"), HfOutput("lm_head.weight"),
    HfLayerNorm("model.layers.0.pre_norm.weight", "model.layers.0.pre_norm.bias",
                "token_embd_norm.weight", "token_embd_norm.bias"),
    HfLayerNorm("model.norm.weight", "model.norm.bias", "output_norm.weight", "output_norm.bias"),
    HfLayerNorm("model.layers.{}.attn_norm.weight", "model.layers.{}.attn_norm.bias",
                "blk.{}.attn_norm.weight", "blk.{}.attn_norm.bias"),
    HfLayerNorm("model.layers.{}.ffn_norm.weight", "model.layers.{}.ffn_norm.bias",
                "blk.{}.attn_norm_2.weight", "blk.{}.attn_norm_2.bias"),
    HfLayerNorm("model.layers.{}.attn.g_norm.weight", "model.layers.{}.attn.g_norm.bias",
                "blk.{}.time_mix_ln.weight", "blk.{}.time_mix_ln.bias"),
    kTimeMix, kUnusedMix,
    std::array<HfTensor, 3>{{
        HfVector("model.layers.{}.ffn.x_k", "blk.{}.channel_mix_lerp_k.weight"),
        HfMatrix("model.layers.{}.ffn.key.weight", "blk.{}.channel_mix_key.weight", Extent::kFfn,
                 Extent::kDim),
        HfMatrix("model.layers.{}.ffn.value.weight", "blk.{}.channel_mix_value.weight",
                 Extent::kDim, Extent::kFfn),
    }});

// A rank by its key, or what the class takes without it: dim^power * factor in multiples of 32.
Result<int64_t> ReadRank(const JsonObject& config, std::string_view key, double dim, double power,
                         double factor) {
  KVANT_ASSIGN(const auto given, config.Integer(key, kDimMax));
  if (given.value_or(0) > 0) return *given;
  const double multiples = std::nearbyint(std::pow(dim, power) * factor / 32);
  return static_cast<int64_t>(std::max(1.0, multiples)) * 32;
}

Status FinishShape(const JsonObject& config, HfShape& shape) {
  HfRwkv& rwkv = shape.rwkv;
  KVANT_TRY(ReadRwkvHeads(config, "head_dim", shape));
  KVANT_ASSIGN(const auto ffn, config.Integer("intermediate_size", kDimMax));
  shape.ffn = ffn.value_or(4 * shape.dim);
  rwkv.mixes = 6;
  const auto dim = static_cast<double>(shape.dim);
  KVANT_ASSIGN(rwkv.decay_rank, ReadRank(config, "decay_low_rank_dim", dim, 0.5, 1.8));
  KVANT_ASSIGN(rwkv.rate_rank, ReadRank(config, "a_low_rank_dim", dim, 0.5, 1.8));
  KVANT_ASSIGN(rwkv.value_rank, ReadRank(config, "v_low_rank_dim", dim, 0.5, 1.3));
  KVANT_ASSIGN(rwkv.gate_rank, ReadRank(config, "gate_low_rank_dim", dim, 0.8, 0.6));
  return {};
}

Status AddRwkv7(const JsonObject& config, const HfShape& shape, Parameters& out) {
  const auto add = [&](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  add("wkv.head_size", shape.rwkv.head_dim);
  add("attention.decay_lora_rank", shape.rwkv.decay_rank);
  add("attention.iclr_lora_rank", shape.rwkv.rate_rank);
  add("attention.value_residual_mix_lora_rank", shape.rwkv.value_rank);
  add("attention.gate_lora_rank", shape.rwkv.gate_rank);
  KVANT_ASSIGN(const auto norm_first, config.Bool("norm_first"));
  if (!norm_first.value_or(true)) return config.Wrong("norm_first", "true");
  // The epsilon of the norm of heads is this one times the size of a head.
  constexpr double kHeadEpsilon = 64e-5;
  KVANT_ASSIGN(const auto epsilon, config.Number("norm_eps"));
  const double found = epsilon.value_or(0) * static_cast<double>(shape.rwkv.head_dim);
  if (std::abs(found - kHeadEpsilon) > 1e-6 * kHeadEpsilon) {
    return config.Wrong("norm_eps",
                        fmt::format("{}", kHeadEpsilon / static_cast<double>(shape.rwkv.head_dim)));
  }
  return {};
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "hidden_act", .names = kActivations},
    .keys = {.ffn = "", .heads = "", .kv_heads = "", .context = ""},
    .epsilon = {.key = "norm_eps", .gguf_key = "attention.layer_norm_epsilon"},
    .finish_shape = FinishShape,
    .rope_base = 0,
    .tensors = kTensors,
    .add_parameters = AddRwkv7,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "RWKV 7", .read = Read, .hf = kHf};

}  // namespace kvant::arch::rwkv7
