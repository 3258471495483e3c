// Mamba 1, a model of recurrent layers alone, and Falcon-Mamba, which norms what steps, b and c are
// made of.
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/arch/decoder.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_mamba1.h"
#include "engine/arch/hf/hf_tensors.h"

namespace kvant::arch::mamba {
namespace {

constexpr std::string_view kName = "mamba";

// The model has no limit; other engines write this one.
constexpr int64_t kContext = 1 << 20;

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, ReadDecoder(metadata));
  Stack& stack = model.stacks.front();
  KVANT_ASSIGN(const Mamba1 mamba, ReadMamba1(metadata, stack.final_norm.epsilon));
  for (LayerSpec& layer : stack.layers) {
    layer.sublayers = {{Norm{NormKind::kRms, "attn_norm", stack.final_norm.epsilon}, mamba}};
  }
  return model;
}

constexpr std::string_view kClasses[] = {"MambaForCausalLM"};
constexpr std::string_view kFalconClasses[] = {"FalconMambaForCausalLM"};

constexpr auto kTensors =
    Join(HfEmbedding("backbone.embeddings.weight"),
         HfNorm("backbone.norm_f.weight", "output_norm.weight"), HfOutput("lm_head.weight"),
         HfNorm("backbone.layers.{}.norm.weight", "blk.{}.attn_norm.weight"), kHfMixerMamba1);

Status FinishShape(const JsonObject& config, HfShape& shape) {
  shape.context = kContext;
  return ReadHfMamba1(config,
                      {.inner = "intermediate_size",
                       .expand = "expand",
                       .state_dim = "state_size",
                       .rank = "time_step_rank",
                       .taps = "conv_kernel"},
                      shape);
}

Status AddFalconParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  constexpr double kEpsilon = 1e-6;
  KVANT_TRY(AddMamba1(config, shape, out));
  out.writer->AddBool(out.Key("ssm.dt_b_c_rms"), true);
  KVANT_ASSIGN(const auto given, config.Number("mixer_rms_eps"));
  const double epsilon = given.value_or(kEpsilon);
  if (!(epsilon > 0)) return config.Wrong("mixer_rms_eps", "a positive number");
  out.writer->AddF32(out.Key("ssm.dt_b_c_rms_epsilon"), static_cast<float>(epsilon));
  return {};
}

constexpr HfFamily OfClasses(std::span<const std::string_view> classes,
                             decltype(HfFamily::add_parameters) add_parameters) {
  return {.classes = classes,
          .arch = kName,
          .activation = kSiluActivation,
          .keys = {.ffn = "", .heads = "", .kv_heads = "", .context = ""},
          .epsilon = {.key = "layer_norm_epsilon"},
          .finish_shape = FinishShape,
          .rope_base = 0,
          .tensors = kTensors,
          .add_parameters = add_parameters};
}
constexpr HfFamily kHf[] = {OfClasses(kClasses, AddMamba1),
                            OfClasses(kFalconClasses, AddFalconParameters)};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Mamba 1, Falcon-Mamba", .read = Read, .hf = kHf};

}  // namespace kvant::arch::mamba
