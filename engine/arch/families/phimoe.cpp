// Phi-3.5 MoE: layer norms, biases of the attention and of the output, LongRoPE, and two experts
// that a sparse mixer chooses one after the other.
#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::phimoe {
namespace {

constexpr std::string_view kName = "phimoe";

// The models' "router_jitter_noise", for which files have no key.
constexpr float kJitter = 0.01f;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  // Files give the epsilon under the key of other norms.
  stack.final_norm.kind = NormKind::kLayer;
  KVANT_ASSIGN(auto attentions, ReadAttentions(metadata, stack));
  KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kHalves, attentions, model.ropes));
  KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, attentions,
                                  {.gating = graph::Gating::kSparseMixer, .jitter = kJitter}));
  return model;
}

constexpr std::string_view kClasses[] = {"PhimoeForCausalLM", "PhiMoEForCausalLM"};
constexpr double kBase = 1e6;
constexpr std::string_view kRopeNames[] = {"short_mscale", "long_mscale"};

constexpr std::array<HfTensor, 4> kExperts = {
    HfOfExperts("model.layers.{}.block_sparse_moe.gate.weight", kRouterName, Extent::kExperts,
                Extent::kDim),
    HfOfExperts("model.layers.{}.block_sparse_moe.experts.{}.w1.weight",
                "blk.{}.ffn_gate_exps.weight", Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.block_sparse_moe.experts.{}.w3.weight",
                "blk.{}.ffn_up_exps.weight", Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.block_sparse_moe.experts.{}.w2.weight",
                "blk.{}.ffn_down_exps.weight", Extent::kDim, Extent::kExpertFfn, ExpertForm::kEach),
};

constexpr auto kTensors =
    Join(kHfEnds, kHfFinalNormBias, HfOptional("lm_head.bias", "output.bias", Extent::kVocab),
         kHfNormBeforeAttention, kHfNormBeforeAttentionBias, kHfSeparateQkv, kHfAttentionOutput,
         kHfNormBeforeFfn, kHfNormBeforeFfnBias, kExperts);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  if (shape.experts_used != 2) return config.Wrong("num_experts_per_tok", "2");
  KVANT_ASSIGN(const auto jitter, config.Number("router_jitter_noise"));
  if (static_cast<float>(jitter.value_or(kJitter)) != kJitter) {
    return config.Wrong("router_jitter_noise", fmt::format("{}", kJitter));
  }
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  KVANT_TRY(AddWindowIfAny(config, out));
  return AddLongRope(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_base = kBase,
    .rope_names = kRopeNames,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_local_experts", .ffn = "intermediate_size"},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Phi-3.5 MoE", .read = Read, .hf = kHf};

}  // namespace kvant::arch::phimoe
