// DeepSeek V2 and V3 with their relatives Kimi-K2, GLM-4.7-Flash and Mistral Large 3, whose queries
// have a temperature that grows with their position: latent attention, and experts
// whose router may choose groups of experts first; the first layers have none. The rope rotates
// neighbouring pairs of the last dimensions of a head, in transformers, too.
//
// V2 has a softmax router and a group is worth its best expert; V3 and the others have a sigmoid
// router with a bias of the choice, and a group is worth its best two.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_latent.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/graph/attention/attention_nodes.h"
#include "engine/limits.h"

namespace kvant::arch::deepseek2 {
namespace {

constexpr std::string_view kName = "deepseek2";

// Gates as expert_gating_func numbers them.
constexpr uint32_t kSoftmax = 1;
constexpr uint32_t kSigmoid = 2;

// Files without expert_gating_func are of V2, or of models whose router has a bias of the choice.
Result<bool> HasSigmoidRouter(const Metadata& metadata, size_t layers) {
  KVANT_ASSIGN(const int64_t gating, metadata.CountOr("expert_gating_func", kExpertsMax, 0));
  if (gating != 0) return gating == int64_t{kSigmoid};
  for (size_t i = 0; i < layers; ++i) {
    const std::string name = fmt::format("blk.{}.exp_probs_b.bias", i);
    if (metadata.file().FindTensor(name) != nullptr) return true;
  }
  return false;
}

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions,
               ReadLatentAttentions(metadata, stack, cpu::RopeStyle::kInterleaved, model.ropes));
  KVANT_ASSIGN(const graph::QueryTemperature temperature,
               ReadTemperature(metadata, "attention.temperature_length"));
  for (LatentAttention& attention : attentions) attention.temperature = temperature;
  KVANT_ASSIGN(const bool sigmoid, HasSigmoidRouter(metadata, stack.layers.size()));
  KVANT_TRY(FillLayersWithExperts(
      metadata, stack, {}, attentions,
      {.gating = sigmoid ? graph::Gating::kSigmoid : graph::Gating::kSoftmax,
       .group_score = sigmoid ? graph::GroupScore::kSumOfTopTwo : graph::GroupScore::kMax,
       .shared = SharedExpert::kPlain}));
  return model;
}

// Completes the sizes for both kinds of classes.
Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(FinishLatentShape(config, shape));
  shape.kv_heads = 1;  // of the cache
  return {};
}

constexpr auto kTensors = Join(
    kHfEnds, kHfNormBeforeAttention, kHfLatentProjections,
    HfOptional("model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", Extent::kDim),
    kHfLatentKvOfHeads, kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)),
    kHfExperts, IfPresent(kHfSelectionBias), kHfSharedExperts);

Status AddShared(const JsonObject& config, const HfShape& shape, uint32_t gating, Parameters& out) {
  AddLatentSizes(shape, HfLatentKv::kOfHeads, out);
  KVANT_ASSIGN(const auto dense, config.Integer("first_k_dense_replace", kLayersMax));
  out.writer->AddU32(out.Key("leading_dense_block_count"),
                     static_cast<uint32_t>(dense.value_or(0)));
  out.writer->AddU32(out.Key("expert_gating_func"), gating);
  return AddLatentRopeScaling(config, shape, out);
}

// ---- DeepSeek V2 --------------------------------------------------------------------------------

constexpr std::string_view kV2Classes[] = {"DeepseekV2ForCausalLM"};

Status AddV2Parameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddShared(config, shape, kSoftmax, out));
  KVANT_TRY(RefuseTrue(config, "norm_topk_prob"));
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kAsTheyAre, ExpertWeights::kAsTheyAre, out));
  KVANT_ASSIGN(const auto method, config.String("topk_method"));
  if (method.value_or("greedy") == "greedy") return {};
  if (*method == "group_limited_greedy") return AddExpertGroups(config, out);
  return config.Wrong("topk_method", "greedy or group_limited_greedy");
}

// ---- DeepSeek V3, Kimi-K2, GLM-4.7-Flash --------------------------------------------------------

constexpr std::string_view kV3Classes[] = {"DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM"};

Status AddV3Parameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto interleaved, config.Bool("rope_interleave"));
  if (!interleaved.value_or(true)) {
    return MakeError(ErrorCode::kNotSupported, "{}: false is not supported",
                     config.Where("rope_interleave"));
  }
  KVANT_TRY(AddShared(config, shape, kSigmoid, out));
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kAsTheyAre, out));
  return AddExpertGroups(config, out);
}

constexpr HfExperts kHfExpertKeys = {.count = "n_routed_experts",
                                     .shared_count = "n_shared_experts"};

constexpr HfFamily kHf[] = {{
                                .classes = kV2Classes,
                                .arch = kName,
                                .activation = kSiluActivation,
                                .finish_shape = FinishShape,
                                .tensors = kTensors,
                                .add_parameters = AddV2Parameters,
                                .experts = kHfExpertKeys,
                            },
                            {
                                .classes = kV3Classes,
                                .arch = kName,
                                .activation = kSiluActivation,
                                .finish_shape = FinishShape,
                                .tensors = kTensors,
                                .add_parameters = AddV3Parameters,
                                .experts = kHfExpertKeys,
                                .keeps_predictors = true,
                            }};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName,
                        .models = "DeepSeek V2, V3 and R1, Kimi-K2, GLM-4.7-Flash, Mistral Large 3",
                        .read = Read,
                        .hf = kHf};

}  // namespace kvant::arch::deepseek2
