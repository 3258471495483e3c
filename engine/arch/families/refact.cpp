// Refact: norms that subtract the mean and have no bias, one key and value for all query heads,
// and scores that fall with the distance (ALiBi) in place of a rotary embedding. Files call the
// epsilon of the norms that of RMS norms.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch::refact {
namespace {

constexpr std::string_view kName = "refact";
constexpr float kMaxBias = 8.0f;

// The model takes two thirds of the width, rounded up to a multiple of this.
constexpr int64_t kWidthUnit = 256;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  stack.final_norm.kind = NormKind::kLayer;
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  KVANT_ASSIGN(const float max_bias, ReadMaxAlibiBias(metadata, kMaxBias));
  for (Attention& attention : attentions) {
    if (max_bias > 0) attention.bias_slopes = AlibiSlopes(attention.heads, max_bias);
  }
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"GPTRefactForCausalLM"};

constexpr HfTensor PartOf(std::string_view hf_name, std::string_view gguf_name, Extent rows,
                          RowPart part) {
  HfTensor tensor = HfMatrix(hf_name, gguf_name, rows, Extent::kDim);
  tensor.part = part;
  return tensor;
}

constexpr std::string_view kKv = "transformer.h.{}.attn.kv.weight";
constexpr std::string_view kGateUp = "transformer.h.{}.mlp.gate_up_proj.weight";

constexpr auto kTensors = std::array{
    HfMatrix("transformer.wte.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    HfNorm("ln_f.weight", "output_norm.weight").front(),
    HfOutput("lm_head.weight").front(),
    HfNorm("transformer.h.{}.ln_1.weight", "blk.{}.attn_norm.weight").front(),
    HfMatrix("transformer.h.{}.attn.q.weight", "blk.{}.attn_q.weight", Extent::kQRows,
             Extent::kDim),
    PartOf(kKv, "blk.{}.attn_k.weight", Extent::kKvRows, RowPart::kFirstHalf),
    PartOf(kKv, "blk.{}.attn_v.weight", Extent::kKvRows, RowPart::kSecondHalf),
    HfMatrix("transformer.h.{}.attn.c_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kQRows),
    HfNorm("transformer.h.{}.ln_2.weight", "blk.{}.ffn_norm.weight").front(),
    PartOf(kGateUp, "blk.{}.ffn_gate.weight", Extent::kFfn, RowPart::kFirstHalf),
    PartOf(kGateUp, "blk.{}.ffn_up.weight", Extent::kFfn, RowPart::kSecondHalf),
    HfMatrix("transformer.h.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
};

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const auto width, config.Integer("n_inner", kDimMax));
  const int64_t two_thirds = 2 * width.value_or(4 * shape.dim) / 3;
  shape.ffn = (two_thirds + kWidthUnit - 1) / kWidthUnit * kWidthUnit;
  shape.kv_heads = 1;
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape&, Parameters&) {
  KVANT_ASSIGN(const auto one, config.Bool("multi_query"));
  if (!one.value_or(true)) return config.Wrong("multi_query", "true");
  return {};
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .keys = {.layers = "n_layer",
             .dim = "n_embd",
             .ffn = "",
             .heads = "n_head",
             .kv_heads = "",
             .context = "n_positions"},
    .epsilon = {.key = "layer_norm_epsilon"},
    .finish_shape = FinishShape,
    .rope_base = 0,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Refact", .read = Read, .hf = kHf};

}  // namespace kvant::arch::refact
