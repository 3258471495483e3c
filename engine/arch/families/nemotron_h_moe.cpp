// Nemotron 3: the layers of Nemotron-H, whose feed-forwards have experts without gates and a shared
// one. In the larger models the experts read latents of the stream.
#include "base/result.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_nemotron_h.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/single_mixers.h"

namespace kvant::arch::nemotron_h_moe {
namespace {

constexpr std::string_view kName = "nemotron_h_moe";

Result<ModelSpec> Read(const Metadata& metadata) {
  return ReadSingleMixers(metadata, MayHaveExperts::kYes);
}

constexpr std::array<HfTensor, 8> kExperts = {
    HfOfExperts("backbone.layers.{}.mixer.gate.weight", kRouterName, Extent::kExperts,
                Extent::kDim),
    HfOfExperts("backbone.layers.{}.mixer.gate.e_score_correction_bias", "blk.{}.exp_probs_b.bias",
                Extent::kExperts, Extent::kNone),
    HfOfExperts("backbone.layers.{}.mixer.fc1_latent_proj.weight", "blk.{}.ffn_latent_down.weight",
                Extent::kExpertLatent, Extent::kDim),
    HfOfExperts("backbone.layers.{}.mixer.fc2_latent_proj.weight", "blk.{}.ffn_latent_up.weight",
                Extent::kDim, Extent::kExpertLatent),
    HfOfExperts("backbone.layers.{}.mixer.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight",
                Extent::kExpertFfn, Extent::kExpertDim, ExpertForm::kEach),
    HfOfExperts("backbone.layers.{}.mixer.experts.{}.down_proj.weight",
                "blk.{}.ffn_down_exps.weight", Extent::kExpertDim, Extent::kExpertFfn,
                ExpertForm::kEach),
    HfOfExperts("backbone.layers.{}.mixer.shared_experts.up_proj.weight",
                "blk.{}.ffn_up_shexp.weight", Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("backbone.layers.{}.mixer.shared_experts.down_proj.weight",
                "blk.{}.ffn_down_shexp.weight", Extent::kDim, Extent::kSharedFfn),
};

constexpr auto kTensors = Join(kHfNemotronEnds, kHfNemotronLayers, kExperts);

Status AddParametersOf(const JsonObject& config, const HfShape& shape, Parameters& out) {
  const auto add = [&](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  KVANT_TRY(AddNemotronParameters(config, shape, out));
  KVANT_TRY(AddExpertWeights(config, ExpertWeights::kNormalized, ExpertWeights::kAsTheyAre, out));
  KVANT_ASSIGN(const auto groups, config.Integer("n_group", kExpertsMax));
  add("expert_group_count", groups.value_or(1));
  KVANT_ASSIGN(const auto used, config.Integer("topk_group", kExpertsMax));
  add("expert_group_used_count", used.value_or(1));
  if (shape.expert_latent > 0) add("moe_latent_size", shape.expert_latent);
  return {};
}

constexpr HfFamily kHf[] = {[] {
  HfFamily family = NemotronFamily(kName, kTensors);
  family.is_of = HasNemotronExperts;
  family.add_parameters = AddParametersOf;
  family.experts = {.count = "n_routed_experts",
                    .shared_ffn = "moe_shared_expert_intermediate_size"};
  return family;
}()};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Nemotron 3", .read = Read, .hf = kHf};

}  // namespace kvant::arch::nemotron_h_moe
