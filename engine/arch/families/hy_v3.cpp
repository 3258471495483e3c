// Hy3: the Llama layer with norms of queries and keys, rotary embedding over halves, and experts
// behind a sigmoid router whose choice has a bias of its own; the first layers have none.
#include "base/result.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"

namespace kvant::arch::hy_v3 {
namespace {

constexpr std::string_view kName = "hy_v3";

constexpr std::string_view kClasses[] = {"HYV3ForCausalLM"};
constexpr double kBase = 11158840.0;

constexpr std::array<HfTensor, 5> kRouterAndShared = {
    HfOfExperts("model.layers.{}.mlp.router.gate.weight", kRouterName, Extent::kExperts,
                Extent::kDim),
    HfOfExperts("model.layers.{}.mlp.expert_bias", "blk.{}.exp_probs_b", Extent::kExperts,
                Extent::kNone),
    HfOfExperts("model.layers.{}.mlp.shared_mlp.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight",
                Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.mlp.shared_mlp.up_proj.weight", "blk.{}.ffn_up_shexp.weight",
                Extent::kSharedFfn, Extent::kDim),
    HfOfExperts("model.layers.{}.mlp.shared_mlp.down_proj.weight", "blk.{}.ffn_down_shexp.weight",
                Extent::kDim, Extent::kSharedFfn),
};

constexpr auto kTensors =
    Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms, kHfAttentionOutput,
         kHfNormBeforeFfn, WithoutExperts(Join(kHfSeparateGateUp, kHfDown)), kRouterAndShared,
         kHfEachExpert);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const auto first, config.Integer("first_k_dense_replace", kLayersMax));
  KVANT_ASSIGN(const int64_t dense, CountLeadingDense(config, shape.layers, first.value_or(1)));
  AddSigmoidGating(dense, out);
  KVANT_ASSIGN(const auto normalized, config.Bool("route_norm"));
  out.writer->AddBool(out.Key("expert_weights_norm"), normalized.value_or(true));
  KVANT_TRY(AddPositive(config, "router_scaling_factor", "expert_weights_scale", out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_base = kBase,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_experts", .shared_count = "num_shared_experts"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Hy3", .read = dots1::Read, .hf = kHf};

}  // namespace kvant::arch::hy_v3
