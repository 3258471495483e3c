// Granite 4: Mamba 2, and attention in the layers that have kv heads, with experts or a gated
// feed-forward in each layer, and the scales of Granite 3.
#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"
#include "engine/arch/read_ropes.h"

namespace kvant::arch::granitehybrid {
namespace {

constexpr std::string_view kName = "granitehybrid";

// Says whether positions rotate queries and keys.
constexpr std::string_view kHasRope = "rope.scaling.finetuned";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata, MayHaveExperts::kYes));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(auto attentions, ReadSomeAttentions(metadata, stack));
  KVANT_ASSIGN(const bool turned, ReadHasRope(metadata));
  if (turned) {
    KVANT_TRY(ReadRopes(metadata, cpu::RopeStyle::kInterleaved, attentions, model.ropes));
  }
  KVANT_ASSIGN(const Mamba2 mamba, ReadMamba2(metadata, stack.final_norm.epsilon));
  const std::vector<Block> mixers = MixersOf(attentions, mamba);
  KVANT_ASSIGN(const int64_t experts, metadata.CountOr("expert_count", kExpertsMax, 0));
  if (experts > 0) {
    KVANT_TRY(FillLayersWithExperts(
        metadata, stack, {}, mixers,
        {.gating = graph::Gating::kSoftmaxOfChosen, .shared = SharedExpert::kPlain}));
  } else {
    KVANT_ASSIGN(const auto gated, ReadGatedFfns(metadata, stack, cpu::Activation::kSilu));
    FillLayers(stack, {}, mixers, std::vector<Block>(gated.begin(), gated.end()));
  }
  KVANT_TRY(ReadStreamScales(metadata, {}, stack));
  return model;
}

constexpr std::string_view kClasses[] = {"GraniteMoeHybridForCausalLM"};

// The folder has gate and up in one tensor, other engines read two.
constexpr HfTensor HalfOf(std::string_view hf_name, std::string_view gguf_name, RowPart part) {
  return {.hf_name = hf_name,
          .gguf_name = gguf_name,
          .rows = Extent::kFfn,
          .columns = Extent::kDim,
          .part = part};
}
constexpr std::array<HfTensor, 3> kFfn = {
    HalfOf("model.layers.{}.shared_mlp.input_linear.weight", "blk.{}.ffn_gate.weight",
           RowPart::kFirstHalf),
    HalfOf("model.layers.{}.shared_mlp.input_linear.weight", "blk.{}.ffn_up.weight",
           RowPart::kSecondHalf),
    HfMatrix("model.layers.{}.shared_mlp.output_linear.weight", "blk.{}.ffn_down.weight",
             Extent::kDim, Extent::kFfn),
};

constexpr auto kTensors = WithPairsInterleaved(
    Join(kHfEnds, kHfNormBeforeAttention,
         InAttentionLayers(Join(kHfSeparateQkv, kHfAttentionOutput)), InOtherLayers(kHfMamba2),
         kHfNormBeforeFfn, WithoutExperts(kFfn), kHfGraniteExperts, kHfGraniteSharedExpert));

Status FinishShape(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(ReadAttentionLayers(
      config, {.other = "linear_attention", .older_attention = "attention", .older_other = "mamba"},
      0, shape));
  KVANT_TRY(ReadMamba(config,
                      {.heads = "mamba_n_heads",
                       .head_dim = "mamba_d_head",
                       .state_dim = "mamba_d_state",
                       .groups = "mamba_n_groups",
                       .taps = "mamba_d_conv"},
                      shape));
  if (shape.mamba.groups > 1) {
    return MakeError(ErrorCode::kNotSupported, "{}: {} is not supported, expected 1",
                     config.Where("mamba_n_groups"), shape.mamba.groups);
  }
  KVANT_ASSIGN(const auto experts, config.Integer("num_local_experts", kExpertsMax));
  if (experts.value_or(0) == 0) {
    KVANT_ASSIGN(shape.ffn, config.Count("shared_intermediate_size", kDimMax));
  }
  return {};
}

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(AddMultipliers(config, out));
  KVANT_TRY(AddMamba(config, shape, out));
  KVANT_ASSIGN(const auto positions, config.String("position_embedding_type"));
  const bool turned = positions == "rope";
  if (positions.has_value() && !turned && positions != "nope") {
    return config.Wrong("position_embedding_type", "rope or nope");
  }
  out.writer->AddBool(out.Key(kHasRope), turned);
  return turned ? AddRopeScaling(config, shape, shape.head_dim, out) : Status();
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .finish_shape = FinishShape,
    .tensors = kTensors,
    .add_parameters = AddParameters,
    .experts = {.count = "num_local_experts",
                .ffn = "intermediate_size",
                .shared_ffn = "shared_intermediate_size",
                .may_be_none = true},
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Granite 4", .read = Read, .hf = kHf};

}  // namespace kvant::arch::granitehybrid
