// Baichuan 1 and 2: the Llama layer with q, k and v in one matrix in the folder. The 13B models
// have ALiBi in place of a rotary embedding; Baichuan 2 divides the rows of its output by their
// lengths. The model rotates pairs of half-heads, so the conversion interleaves rows of q and k.
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

namespace kvant::arch::baichuan {
namespace {

constexpr std::string_view kName = "baichuan";
constexpr float kMaxBias = 8.0f;

// The 13B models use ALiBi. Files of other engines do not say so; only their 40 layers tell.
constexpr int64_t kLayersWithAlibi = 40;

// The vocabulary of Baichuan 2, by which its output is known.
constexpr int64_t kVocabOfUnitRows = 125696;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  const bool known = std::ssize(stack.layers) == kLayersWithAlibi;
  KVANT_ASSIGN(const float max_bias, ReadMaxAlibiBias(metadata, known ? kMaxBias : 0));
  if (max_bias == 0) {
    KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  } else {
    for (Attention& attention : attentions) {
      attention.bias_slopes = AlibiSlopes(attention.heads, max_bias);
    }
  }
  KVANT_ASSIGN(const auto ffns, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
  FillLayers(stack, {}, attentions, ffns);
  return model;
}

constexpr std::string_view kClasses[] = {"BaichuanForCausalLM", "BaiChuanForCausalLM"};

constexpr HfTensor OfQkv(RowPart part, std::string_view gguf_name, Extent rows, RowOrder order) {
  return {.hf_name = "model.layers.{}.self_attn.W_pack.weight",
          .gguf_name = gguf_name,
          .rows = rows,
          .columns = Extent::kDim,
          .order = order,
          .part = part};
}

constexpr std::array<HfTensor, 3> kQkv = {
    OfQkv(RowPart::kQueries, "blk.{}.attn_q.weight", Extent::kQRows, RowOrder::kPairsInterleaved),
    OfQkv(RowPart::kKeys, "blk.{}.attn_k.weight", Extent::kKvRows, RowOrder::kPairsInterleaved),
    OfQkv(RowPart::kValues, "blk.{}.attn_v.weight", Extent::kKvRows, RowOrder::kSame),
};

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kQkv, kHfAttentionOutput,
                               kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown);

// The models with ALiBi have no largest number of positions, but one that their tokenizer keeps to.
Status FinishShape(const JsonObject& config, HfShape& shape) {
  const bool learned = config.Find("max_position_embeddings") != nullptr;
  KVANT_ASSIGN(shape.context,
               config.Count(learned ? "max_position_embeddings" : "model_max_length", kContextMax));
  return {};
}

bool HasUnitRows(const HfShape& shape) { return shape.vocab == kVocabOfUnitRows; }

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  const bool rotated = config.Find("max_position_embeddings") != nullptr;
  if (!rotated || shape.layers == kLayersWithAlibi) {
    out.writer->AddF32(out.Key("attention.max_alibi_bias"), kMaxBias);
    return {};
  }
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .keys = {.kv_heads = "", .context = ""},
    .finish_shape = FinishShape,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .has_unit_output_rows = HasUnitRows,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Baichuan 1 and 2", .read = Read, .hf = kHf};

}  // namespace kvant::arch::baichuan
