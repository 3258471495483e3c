// Qwen 3 VL with experts, its text model: Qwen 3 MoE, whose rope gives sections of its pairs the
// time and the place in an image. All are one number in a text.
#include "base/result.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"

namespace kvant::arch::qwen3vlmoe {
namespace {

constexpr std::string_view kName = "qwen3vlmoe";

constexpr std::string_view kClasses[] = {"Qwen3VLMoeForConditionalGeneration"};
constexpr double kBase = 5e6;

// Rows of the folder's matrices are columns of the file's.
constexpr HfTensor OfExperts(std::string_view hf_name, std::string_view gguf_name, Extent rows,
                             Extent columns, RowPart part) {
  HfTensor tensor = HfOfExperts(hf_name, gguf_name, rows, columns, ExpertForm::kStacked, part);
  tensor.order = RowOrder::kTransposed;
  return tensor;
}

constexpr std::array<HfTensor, 4> kExperts = {
    kHfExperts[0],
    OfExperts("model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_exps.weight",
              Extent::kExpertFfn, Extent::kDim, RowPart::kFirstHalf),
    OfExperts("model.layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_up_exps.weight",
              Extent::kExpertFfn, Extent::kDim, RowPart::kSecondHalf),
    OfExperts("model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight", Extent::kDim,
              Extent::kExpertFfn, RowPart::kAll),
};

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms, kHfAttentionOutput,
         kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kNormalized, out));
  KVANT_ASSIGN(const RopeSettings rope, RopeSettings::Read(config));
  KVANT_TRY(AddRopeSections(rope, {24, 20, 20}, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_base = kBase,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {
    .name = kName, .models = "Qwen 3 VL MoE", .read = qwen3moe::Read, .hf = kHf};

}  // namespace kvant::arch::qwen3vlmoe
