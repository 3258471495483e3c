// Jamba: Mamba 1 with norms of what steps, b and c are made of, attention without rotation in the
// layers that have kv heads, and experts or a gated feed-forward in each layer.
#include <algorithm>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_mamba1.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch::jamba {
namespace {

constexpr std::string_view kName = "jamba";

// A single expert is a gated feed-forward without a router.
Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(const auto attentions, ReadSomeAttentions(metadata, stack));
  KVANT_ASSIGN(Mamba1 mamba, ReadMamba1(metadata, stack.final_norm.epsilon));
  mamba.norms = StepNorms::kWithWeights;
  const std::vector<Block> mixers = MixersOf(attentions, mamba);
  KVANT_ASSIGN(const int64_t experts, metadata.CountOr("expert_count", kExpertsMax, 0));
  if (experts > 1) {
    KVANT_TRY(FillLayersWithExperts(metadata, stack, {}, mixers, {}));
  } else {
    KVANT_ASSIGN(const auto gated, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
    FillLayers(stack, {}, mixers, std::vector<Block>(gated.begin(), gated.end()));
  }
  return model;
}

constexpr std::string_view kClasses[] = {"JambaForCausalLM"};

constexpr auto kEnds =
    Join(HfEmbedding("model.embed_tokens.weight"),
         HfNorm("model.final_layernorm.weight", "output_norm.weight"), HfOutput("lm_head.weight"));

constexpr std::array<HfTensor, 11> kMamba = {{
    HfMatrix("model.layers.{}.mamba.in_proj.weight", "blk.{}.ssm_in.weight", Extent::kTwoMambaInner,
             Extent::kDim),
    HfBias("model.layers.{}.mamba.in_proj.bias", "blk.{}.ssm_in.bias", Extent::kTwoMambaInner),
    HfMatrix("model.layers.{}.mamba.conv1d.weight", "blk.{}.ssm_conv1d.weight", Extent::kMambaInner,
             Extent::kConvTaps),
    HfBias("model.layers.{}.mamba.conv1d.bias", "blk.{}.ssm_conv1d.bias", Extent::kMambaInner),
    HfMatrix("model.layers.{}.mamba.x_proj.weight", "blk.{}.ssm_x.weight", Extent::kMambaParameters,
             Extent::kMambaInner),
    HfMatrix("model.layers.{}.mamba.dt_proj.weight", "blk.{}.ssm_dt.weight", Extent::kMambaInner,
             Extent::kMambaRank),
    {.hf_name = "model.layers.{}.mamba.dt_proj.bias",
     .gguf_name = "blk.{}.ssm_dt.bias",
     .rows = Extent::kMambaInner},
    {.hf_name = "model.layers.{}.mamba.A_log",
     .gguf_name = "blk.{}.ssm_a",
     .rows = Extent::kMambaInner,
     .columns = Extent::kMambaState,
     .values = Values::kMinusExp},
    {.hf_name = "model.layers.{}.mamba.D",
     .gguf_name = "blk.{}.ssm_d",
     .rows = Extent::kMambaInner},
    HfMatrix("model.layers.{}.mamba.out_proj.weight", "blk.{}.ssm_out.weight", Extent::kDim,
             Extent::kMambaInner),
    HfBias("model.layers.{}.mamba.out_proj.bias", "blk.{}.ssm_out.bias", Extent::kDim),
}};

constexpr auto kStepNorms = Join(HfNorm("model.layers.{}.mamba.dt_layernorm.weight",
                                        "blk.{}.ssm_dt_norm.weight", Extent::kMambaRank),
                                 HfNorm("model.layers.{}.mamba.b_layernorm.weight",
                                        "blk.{}.ssm_b_norm.weight", Extent::kMambaState),
                                 HfNorm("model.layers.{}.mamba.c_layernorm.weight",
                                        "blk.{}.ssm_c_norm.weight", Extent::kMambaState));

constexpr std::array<HfTensor, 3> kFfn = {
    HfMatrix("model.layers.{}.feed_forward.gate_proj.weight", "blk.{}.ffn_gate.weight",
             Extent::kFfn, Extent::kDim),
    HfMatrix("model.layers.{}.feed_forward.up_proj.weight", "blk.{}.ffn_up.weight", Extent::kFfn,
             Extent::kDim),
    HfMatrix("model.layers.{}.feed_forward.down_proj.weight", "blk.{}.ffn_down.weight",
             Extent::kDim, Extent::kFfn),
};

constexpr std::array<HfTensor, 4> kExperts = {
    HfOfExperts("model.layers.{}.feed_forward.router.weight", kRouterName, Extent::kExperts,
                Extent::kDim),
    HfOfExperts("model.layers.{}.feed_forward.experts.{}.gate_proj.weight",
                "blk.{}.ffn_gate_exps.weight", Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.feed_forward.experts.{}.up_proj.weight",
                "blk.{}.ffn_up_exps.weight", Extent::kExpertFfn, Extent::kDim, ExpertForm::kEach),
    HfOfExperts("model.layers.{}.feed_forward.experts.{}.down_proj.weight",
                "blk.{}.ffn_down_exps.weight", Extent::kDim, Extent::kExpertFfn, ExpertForm::kEach),
};

constexpr auto kTensors =
    Join(kEnds, kHfNormBeforeAttention, InAttentionLayers(Join(kHfSeparateQkv, kHfAttentionOutput)),
         InOtherLayers(Join(kMamba, kStepNorms)),
         HfNorm("model.layers.{}.pre_ff_layernorm.weight", "blk.{}.ffn_norm.weight"),
         WithoutExperts(kFfn), kExperts);

Status FinishShape(const JsonObject& config, HfShape& shape) {
  constexpr std::string_view kOffset = "attn_layer_offset";
  KVANT_ASSIGN(const int64_t period, config.Count("attn_layer_period", kLayersMax));
  KVANT_ASSIGN(const auto offset, config.Integer(kOffset, kLayersMax));
  if (offset.value_or(0) >= std::min(period, shape.layers)) {
    return config.Wrong(kOffset, fmt::format("less than {}", std::min(period, shape.layers)));
  }
  for (int64_t i = 0; i < shape.layers; ++i) {
    shape.attention_layers.push_back(i % period == offset.value_or(0));
  }
  return ReadHfMamba1(config,
                      {.inner = "",
                       .expand = "mamba_expand",
                       .state_dim = "mamba_d_state",
                       .rank = "mamba_dt_rank",
                       .taps = "mamba_d_conv"},
                      shape);
}

Status AddParametersOf(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseNumber(config, "sliding_window"));
  return AddMamba1(config, shape, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .finish_shape = FinishShape,
    .rope_base = 0,
    .tensors = kTensors,
    .add_parameters = AddParametersOf,
    .experts = {.count = "num_experts", .ffn = "intermediate_size", .may_be_none = true, .none = 1},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Jamba", .read = Read, .hf = kHf};

}  // namespace kvant::arch::jamba
