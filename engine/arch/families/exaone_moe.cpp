// K-EXAONE: the Llama layer with norms of queries and keys, a window in three of four layers, which
// alone have a rotary embedding, and experts behind a sigmoid router whose choice has a bias of its
// own; the first layers have none.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::exaone_moe {
namespace {

constexpr std::string_view kName = "exaone-moe";
constexpr uint32_t kPattern = 4;  // every fourth layer sees all positions

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  for (Attention& attention : attentions) attention.head_norms = HeadNorms::kRequired;
  if (metadata.Has("attention.sliding_window")) {
    KVANT_ASSIGN(const auto windows, ReadWindowPattern(metadata, attentions.size(), kPattern));
    KVANT_TRY(KeepWindows(metadata, windows, attentions));
    RotateOnly(windows, attentions);
  }
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions,
                                  {.gating = graph::Gating::kSigmoid,
                                   .normalize = true,
                                   .group_score = graph::GroupScore::kSumOfTopTwo,
                                   .shared = SharedExpert::kPlain}));
  return model;
}

constexpr std::string_view kClasses[] = {"ExaoneMoeForCausalLM", "ExaoneMoEForCausalLM"};

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms, kHfAttentionOutput,
         kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kHfExperts,
         std::array{HfOfExperts("model.layers.{}.mlp.e_score_correction_bias",
                                "blk.{}.exp_probs_b.bias", Extent::kExperts, Extent::kNone)},
         kHfSharedExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  if (config.Find("sliding_window") != nullptr) {
    KVANT_ASSIGN(const auto windows, ReadWindowLayers(config, shape.layers, kPattern));
    KVANT_TRY(AddWindowFlags(config, windows, out));
  }
  KVANT_ASSIGN(const auto first, config.Integer("first_k_dense_replace", kLayersMax));
  KVANT_ASSIGN(const int64_t dense, CountLeadingDense(config, shape.layers, first.value_or(1)));
  AddSigmoidGating(dense, out);
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kNormalized, out));
  KVANT_TRY(AddExpertGroups(config, out));
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
const Family kFamily = {.name = kName, .models = "K-EXAONE", .read = Read, .hf = kHf};

}  // namespace kvant::arch::exaone_moe
