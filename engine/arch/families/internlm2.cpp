// InternLM 2 and 2.5: the Llama layer under other names; folders keep the query heads of a kv head
// with its key and its value in one matrix. The model rotates pairs of half-heads, so the
// conversion interleaves the rows of q and k.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::internlm2 {
namespace {

constexpr std::string_view kName = "internlm2";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"InternLM2ForCausalLM"};

constexpr HfTensor OfQkv(RowPart part, std::string_view gguf_name, Extent rows, RowOrder order) {
  return {.hf_name = "model.layers.{}.attention.wqkv.weight",
          .gguf_name = gguf_name,
          .rows = rows,
          .columns = Extent::kDim,
          .order = order,
          .part = part};
}

constexpr HfTensor BiasOfQkv(RowPart part, std::string_view gguf_name, Extent rows,
                             RowOrder order) {
  HfTensor tensor = OfQkv(part, gguf_name, rows, order);
  tensor.hf_name = "model.layers.{}.attention.wqkv.bias";
  tensor.columns = Extent::kNone;
  tensor.presence = Presence::kOptional;
  return tensor;
}

constexpr auto kTensors = std::array{
    HfMatrix("model.tok_embeddings.weight", kEmbeddingName, Extent::kVocab, Extent::kDim),
    HfNorm("model.norm.weight", "output_norm.weight").front(),
    HfOutput("output.weight").front(),
    HfNorm("model.layers.{}.attention_norm.weight", "blk.{}.attn_norm.weight").front(),
    OfQkv(RowPart::kQueries, "blk.{}.attn_q.weight", Extent::kQRows, RowOrder::kGroupedPairs),
    BiasOfQkv(RowPart::kQueries, "blk.{}.attn_q.bias", Extent::kQRows, RowOrder::kGroupedPairs),
    OfQkv(RowPart::kKeys, "blk.{}.attn_k.weight", Extent::kKvRows, RowOrder::kGroupedPairs),
    BiasOfQkv(RowPart::kKeys, "blk.{}.attn_k.bias", Extent::kKvRows, RowOrder::kGroupedPairs),
    OfQkv(RowPart::kValues, "blk.{}.attn_v.weight", Extent::kKvRows, RowOrder::kGroupedQkv),
    BiasOfQkv(RowPart::kValues, "blk.{}.attn_v.bias", Extent::kKvRows, RowOrder::kGroupedQkv),
    HfMatrix("model.layers.{}.attention.wo.weight", "blk.{}.attn_output.weight", Extent::kDim,
             Extent::kQRows),
    HfBias("model.layers.{}.attention.wo.bias", "blk.{}.attn_output.bias", Extent::kDim),
    HfNorm("model.layers.{}.ffn_norm.weight", "blk.{}.ffn_norm.weight").front(),
    HfMatrix("model.layers.{}.feed_forward.w1.weight", "blk.{}.ffn_gate.weight", Extent::kFfn,
             Extent::kDim),
    HfMatrix("model.layers.{}.feed_forward.w3.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfMatrix("model.layers.{}.feed_forward.w2.weight", "blk.{}.ffn_down.weight", Extent::kDim,
             Extent::kFfn),
};

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  return AddScalingUpToContext(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "InternLM 2 and 2.5", .read = Read, .hf = kHf};

}  // namespace kvant::arch::internlm2
