// DeepSeek-MoE, the first DeepSeek with experts: the Llama layer with experts behind a softmax
// router and a shared expert; the first layers have none. transformers rotates pairs of half-heads,
// so the conversion interleaves the rows of q and k.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"
#include "engine/limits.h"

namespace kvant::arch::deepseek {
namespace {

constexpr std::string_view kName = "deepseek";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  KVANT_TRY(
      FillLayersWithExperts(metadata, stack, {}, attentions, {.shared = SharedExpert::kPlain}));
  return model;
}

constexpr std::string_view kClasses[] = {"DeepseekForCausalLM"};

constexpr auto kTensors = WithPairsInterleaved(
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput, kHfNormBeforeFfn,
         WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts, kHfSharedExperts));

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto scoring, config.String("scoring_func"));
  if (scoring.value_or("softmax") != "softmax") {
    return MakeError(ErrorCode::kNotSupported, "{}: expected softmax, found {}",
                     config.Where("scoring_func"), *scoring);
  }
  KVANT_ASSIGN(const auto dense, config.Integer("first_k_dense_replace", kLayersMax));
  out.writer->AddU32(out.Key("leading_dense_block_count"),
                     static_cast<uint32_t>(dense.value_or(0)));
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kAsTheyAre, ExpertWeights::kAsTheyAre, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "n_routed_experts", .shared_count = "n_shared_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "DeepSeek-MoE", .read = Read, .hf = kHf};

}  // namespace kvant::arch::deepseek
