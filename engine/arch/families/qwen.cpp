// Qwen 1: the layer of Qwen 2 with q, k and v in one matrix. The width in the file and in
// config.json is that of gate and up together. Beyond the length that config.json calls seq_length,
// the published code stretches positions and scales queries; the file's context ends there.
#include <iterator>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::qwen {
namespace {

constexpr std::string_view kName = "qwen";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_ASSIGN(auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  for (GatedFfn& ffn : ffns) {
    if (ffn.width % 2 != 0) {
      return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected an even number, found {}",
                       metadata.file().path(), metadata.Key("feed_forward_length"), ffn.width);
    }
    ffn.width /= 2;
  }
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"QWenLMHeadModel"};

constexpr auto kTensors = std::array{
    HfMatrix("transformer.wte.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    HfNorm("transformer.ln_f.weight", "output_norm.weight").front(),
    HfOutput("lm_head.weight").front(),
    HfNorm("transformer.h.{}.ln_1.weight", "blk.{}.attn_norm.weight").front(),
    HfMatrix("transformer.h.{}.attn.c_attn.weight", "blk.{}.attn_qkv.weight", Extent::kQkvRows,
             Extent::kDim),
    HfBias("transformer.h.{}.attn.c_attn.bias", "blk.{}.attn_qkv.bias", Extent::kQkvRows),
    HfMatrix("transformer.h.{}.attn.c_proj.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kQRows),
    HfNorm("transformer.h.{}.ln_2.weight", "blk.{}.ffn_norm.weight").front(),
    HfMatrix("transformer.h.{}.mlp.w2.weight", "blk.{}.ffn_gate.weight", Extent::kHalfFfn,
             Extent::kDim),
    HfMatrix("transformer.h.{}.mlp.w1.weight", "blk.{}.ffn_up.weight", Extent::kHalfFfn,
             Extent::kDim),
    HfMatrix("transformer.h.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kHalfFfn),
};

Status FinishShape(const JsonObject& config, HfShape& shape) {
  if (shape.ffn % 2 != 0) return config.Wrong("intermediate_size", "an even number");
  if (config.Find("kv_channels") == nullptr) return {};
  KVANT_ASSIGN(shape.head_dim, config.Count("kv_channels", kHeadDimMax));
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto scaled, config.Bool("scale_attn_weights"));
  if (!scaled.value_or(true)) return config.Wrong("scale_attn_weights", "true");
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .keys = {.kv_heads = "", .context = "seq_length"},
    .epsilon = {.key = "layer_norm_epsilon"},
    .finish_shape = FinishShape,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Qwen 1", .read = Read, .hf = kHf};

}  // namespace kvant::arch::qwen
