// RWKV 6 ("Finch"): recurrent layers alone, each a time mix and a channel mix.
#include "base/result.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_rwkv.h"

namespace kvant::arch::rwkv6 {
namespace {

constexpr std::string_view kName = "rwkv6";

// The model halves the stream every few layers, and the matrices of later layers hold halves
// already.
constexpr float kRescale = 0.5f;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(const Rwkv6Mix mix, ReadRwkv6Mix(metadata, stack.dim));
  KVANT_ASSIGN(auto channels, ReadChannelMixes(metadata, stack, Receptance::kYes));
  KVANT_ASSIGN(const int64_t every, metadata.CountOr("rescale_every_n_layers", kLayersMax, 0));
  const float epsilon = stack.final_norm.epsilon;
  stack.input.norm = {NormKind::kLayer, "token_embd_norm", epsilon};
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    const auto number = static_cast<int64_t>(i + 1);
    if (every > 0 && number % every == 0) channels[i].stream_scale = kRescale;
    stack.layers[i].sublayers = {{Norm{NormKind::kLayer, "attn_norm", epsilon}, mix},
                                 {Norm{NormKind::kLayer, "attn_norm_2", epsilon}, channels[i]}};
  }
  return model;
}

constexpr std::string_view kClasses[] = {"Rwkv6ForCausalLM"};

constexpr auto kTensors = Join(
    HfEmbedding("rwkv.embeddings.weight"), HfOutput("head.weight"),
    HfLayerNorm("rwkv.blocks.0.pre_ln.weight", "rwkv.blocks.0.pre_ln.bias",
                "token_embd_norm.weight", "token_embd_norm.bias"),
    HfLayerNorm("rwkv.ln_out.weight", "rwkv.ln_out.bias", "output_norm.weight", "output_norm.bias"),
    HfLayerNorm("rwkv.blocks.{}.ln1.weight", "rwkv.blocks.{}.ln1.bias", "blk.{}.attn_norm.weight",
                "blk.{}.attn_norm.bias"),
    HfLayerNorm("rwkv.blocks.{}.ln2.weight", "rwkv.blocks.{}.ln2.bias", "blk.{}.attn_norm_2.weight",
                "blk.{}.attn_norm_2.bias"),
    HfLayerNorm("rwkv.blocks.{}.attention.ln_x.weight", "rwkv.blocks.{}.attention.ln_x.bias",
                "blk.{}.time_mix_ln.weight", "blk.{}.time_mix_ln.bias"),
    std::array<HfTensor, 18>{{
        HfVector("rwkv.blocks.{}.attention.time_maa_x", "blk.{}.time_mix_lerp_x.weight"),
        HfLetters("rwkv.blocks.{}.attention.time_maa_{}", "blk.{}.time_mix_lerp_fused.weight",
                  "wkvrg"),
        HfTransposed("rwkv.blocks.{}.attention.time_maa_w1", "blk.{}.time_mix_w1.weight",
                     Extent::kMixRanks, Extent::kDim),
        {.hf_name = "rwkv.blocks.{}.attention.time_maa_w2",
         .gguf_name = "blk.{}.time_mix_w2.weight",
         .rows = Extent::kDim,
         .columns = Extent::kMixRank,
         .order = RowOrder::kTransposed,
         .experts = ExpertForm::kOfMixes},
        HfVector("rwkv.blocks.{}.attention.time_decay", "blk.{}.time_mix_decay.weight"),
        HfTransposed("rwkv.blocks.{}.attention.time_decay_w1", "blk.{}.time_mix_decay_w1.weight",
                     Extent::kDecayRank, Extent::kDim),
        HfTransposed("rwkv.blocks.{}.attention.time_decay_w2", "blk.{}.time_mix_decay_w2.weight",
                     Extent::kDim, Extent::kDecayRank),
        HfMatrix("rwkv.blocks.{}.attention.time_faaaa", "blk.{}.time_mix_first.weight",
                 Extent::kWkvHeads, Extent::kWkvHeadDim),
        HfSquare("rwkv.blocks.{}.attention.receptance.weight", "blk.{}.time_mix_receptance.weight"),
        HfSquare("rwkv.blocks.{}.attention.key.weight", "blk.{}.time_mix_key.weight"),
        HfSquare("rwkv.blocks.{}.attention.value.weight", "blk.{}.time_mix_value.weight"),
        HfSquare("rwkv.blocks.{}.attention.gate.weight", "blk.{}.time_mix_gate.weight"),
        {.hf_name = "rwkv.blocks.{}.attention.output.weight",
         .gguf_name = "blk.{}.time_mix_output.weight",
         .rows = Extent::kDim,
         .columns = Extent::kDim,
         .values = Values::kRescaled},
        HfVector("rwkv.blocks.{}.feed_forward.time_maa_k", "blk.{}.channel_mix_lerp_k.weight"),
        HfVector("rwkv.blocks.{}.feed_forward.time_maa_r", "blk.{}.channel_mix_lerp_r.weight"),
        HfMatrix("rwkv.blocks.{}.feed_forward.key.weight", "blk.{}.channel_mix_key.weight",
                 Extent::kFfn, Extent::kDim),
        HfSquare("rwkv.blocks.{}.feed_forward.receptance.weight",
                 "blk.{}.channel_mix_receptance.weight"),
        {.hf_name = "rwkv.blocks.{}.feed_forward.value.weight",
         .gguf_name = "blk.{}.channel_mix_value.weight",
         .rows = Extent::kDim,
         .columns = Extent::kFfn,
         .values = Values::kRescaled},
    }});

// The class has ranks of its own for one width.
constexpr int64_t kWideDim = 4096;

Status FinishShape(const JsonObject& config, HfShape& shape) {
  HfRwkv& rwkv = shape.rwkv;
  KVANT_TRY(ReadRwkvHeads(config, "head_size", shape));
  KVANT_ASSIGN(const auto inner, config.Integer("attention_hidden_size", kDimMax));
  if (inner.value_or(shape.dim) != shape.dim) {
    return config.Wrong("attention_hidden_size", fmt::format("{}", shape.dim));
  }
  KVANT_ASSIGN(const auto ffn, config.Integer("intermediate_size", kDimMax));
  // 7/2 of the width in whole multiples of 32.
  shape.ffn = ffn.value_or(shape.dim * 7 / 2 / 32 * 32);
  rwkv.mixes = 5;
  rwkv.mix_rank = shape.dim == kWideDim ? 64 : 32;
  rwkv.decay_rank = shape.dim == kWideDim ? 128 : 64;
  KVANT_ASSIGN(const auto every, config.Integer("rescale_every", kLayersMax));
  rwkv.rescale_every = every.value_or(0);
  return {};
}

Status AddRwkv6(const JsonObject& config, const HfShape& shape, Parameters& out) {
  const auto add = [&](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  add("wkv.head_size", shape.rwkv.head_dim);
  add("time_mix_extra_dim", shape.rwkv.mix_rank);
  add("time_decay_extra_dim", shape.rwkv.decay_rank);
  add("rescale_every_n_layers", shape.rwkv.rescale_every);
  // The epsilon of the norm of heads is 1e-5 times its square.
  constexpr double kDivisor = 8;
  KVANT_ASSIGN(const auto divisor, config.Number("head_size_divisor"));
  if (divisor.value_or(kDivisor) != kDivisor) return config.Wrong("head_size_divisor", "8");
  return {};
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .keys = {.ffn = "", .heads = "", .kv_heads = "", .context = ""},
    .epsilon = {.key = "layer_norm_epsilon", .gguf_key = "attention.layer_norm_epsilon"},
    .finish_shape = FinishShape,
    .rope_base = 0,
    .tensors = kTensors,
    .add_parameters = AddRwkv6,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "RWKV 6", .read = Read, .hf = kHf};

}  // namespace kvant::arch::rwkv6
