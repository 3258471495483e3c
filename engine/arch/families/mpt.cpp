// MPT: layer norms without biases, a feed-forward without gates, queries, keys and values within a
// bound, and scores that fall with the distance (ALiBi) instead of a rotary embedding.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch::mpt {
namespace {

constexpr std::string_view kName = "mpt";
constexpr double kEpsilon = 1e-5;    // where config.json says nothing
constexpr int64_t kRatioMax = 1024;  // of the widths of feed-forward and stream

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, NormKind::kLayer));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_ASSIGN(const auto ffns, ReadPlainFfns(metadata, stack, cpu::Activation::kGeluErf));
  KVANT_ASSIGN(const float clamp, metadata.PositiveOr("attention.clamp_kqv", 0));
  KVANT_ASSIGN(const float max_bias, ReadMaxAlibiBias(metadata, 0));
  for (Attention& attention : attentions) {
    attention.clamp = clamp;
    if (max_bias > 0) attention.bias_slopes = AlibiSlopes(attention.heads, max_bias);
  }
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"MptForCausalLM", "MPTForCausalLM"};

constexpr auto kTensors = std::array{
    HfMatrix("transformer.wte.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    HfOutput("lm_head.weight").front(),
    HfNorm("transformer.norm_f.weight", "output_norm.weight").front(),
    HfNorm("transformer.blocks.{}.norm_1.weight", "blk.{}.attn_norm.weight").front(),
    HfMatrix("transformer.blocks.{}.attn.Wqkv.weight", "blk.{}.attn_qkv.weight", Extent::kQkvRows,
             Extent::kDim),
    HfMatrix("transformer.blocks.{}.attn.out_proj.weight", "blk.{}.attn_output.weight",
             Extent::kDim, Extent::kQRows),
    HfNorm("transformer.blocks.{}.norm_2.weight", "blk.{}.ffn_norm.weight").front(),
    HfMatrix("transformer.blocks.{}.ffn.up_proj.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfMatrix("transformer.blocks.{}.ffn.down_proj.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
};

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const int64_t ratio, config.Count("expansion_ratio", kRatioMax));
  shape.ffn = ratio * shape.dim;
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape&, Parameters& out) {
  KVANT_ASSIGN(const auto attention, config.Object("attn_config"));
  if (!attention) return config.Wrong("attn_config", "an object");
  KVANT_TRY(RefuseTrue(*attention, "qk_ln"));
  KVANT_TRY(RefuseNumber(*attention, "softmax_scale"));
  KVANT_ASSIGN(const auto alibi, attention->Bool("alibi"));
  if (!alibi.value_or(true)) {
    return MakeError(ErrorCode::kNotSupported, "{}: false is not supported",
                     attention->Where("alibi"));
  }
  KVANT_TRY(AddPositive(*attention, "alibi_bias_max", "attention.max_alibi_bias", out));
  if (attention->Find("clip_qkv") == nullptr) return {};
  return AddPositive(*attention, "clip_qkv", "attention.clamp_kqv", out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .keys = {.layers = "n_layers",
             .dim = "d_model",
             .ffn = "",
             .heads = "n_heads",
             .kv_heads = "",
             .context = "max_seq_len"},
    .epsilon = {.key = "layer_norm_epsilon",
                .gguf_key = "attention.layer_norm_epsilon",
                .otherwise = kEpsilon},
    .finish_shape = FinishShape,
    .optional_prefix = "transformer.",
    .rope_base = 0,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "MPT", .read = Read, .hf = kHf};

}  // namespace kvant::arch::mpt
