// Ling 1 (Ling-lite, Ling-plus): the Llama layer with experts behind a softmax, whose weights may
// be normalized, and shared experts. The model rotates pairs of half-heads and has q, k and v in
// one matrix, so the conversion takes them apart and interleaves the rows of q and k.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::bailingmoe {
namespace {

constexpr std::string_view kName = "bailingmoe";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_TRY(
      FillLayersWithExperts(metadata, stack, {}, attentions, {.shared = SharedExpert::kPlain}));
  return model;
}

constexpr std::string_view kClasses[] = {"BailingMoeForCausalLM"};

constexpr HfTensor OfQkv(RowPart part, std::string_view gguf_name, Extent rows, RowOrder order) {
  HfTensor tensor =
      HfMatrix("model.layers.{}.attention.query_key_value.weight", gguf_name, rows, Extent::kDim);
  tensor.order = order;
  tensor.part = part;
  return tensor;
}

constexpr auto kTensors = Join(
    HfEmbedding("model.word_embeddings.weight"), HfNorm("model.norm.weight", "output_norm.weight"),
    HfOutput("lm_head.weight"), kHfNormBeforeAttention,
    std::array{
        OfQkv(RowPart::kQueries, "blk.{}.attn_q.weight", Extent::kQRows,
              RowOrder::kPairsInterleaved),
        OfQkv(RowPart::kKeys, "blk.{}.attn_k.weight", Extent::kKvRows, RowOrder::kPairsInterleaved),
        OfQkv(RowPart::kValues, "blk.{}.attn_v.weight", Extent::kKvRows, RowOrder::kSame),
        HfMatrix("model.layers.{}.attention.dense.weight", "blk.{}.attn_output.weight",
                 Extent::kDim, Extent::kQRows)},
    kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts,
    kHfSharedExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  for (const char* key : {"norm_head", "use_bias", "use_qkv_bias", "use_sliding_window"}) {
    KVANT_TRY(RefuseTrue(config, key));
  }
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  KVANT_ASSIGN(const auto dense, config.Integer("first_k_dense_replace", kLayersMax));
  out.writer->AddU32(out.Key("leading_dense_block_count"),
                     static_cast<uint32_t>(dense.value_or(0)));
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kNormalized, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts", .shared_count = "num_shared_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Ling 1", .read = Read, .hf = kHf};

}  // namespace kvant::arch::bailingmoe
