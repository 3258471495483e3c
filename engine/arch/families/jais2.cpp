// Jais 2: the layer of Nemotron, with norms that subtract the mean and a feed-forward without gates
// that squares its positive values, with biases everywhere and a rotary embedding over all of each
// head.
#include "base/result.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"

namespace kvant::arch::jais2 {
namespace {

constexpr std::string_view kName = "jais2";

constexpr std::string_view kClasses[] = {"Jais2ForCausalLM"};
constexpr std::string_view kActivations[] = {"relu2"};

constexpr auto kTensors = Join(kHfEnds, kHfFinalNormBias, kHfNormBeforeAttention,
                               kHfNormBeforeAttentionBias, kHfSeparateQkv, kHfAttentionOutput,
                               kHfNormBeforeFfn, kHfNormBeforeFfnBias, kHfPlainUp, kHfDown);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  out.writer->AddU32(out.Key("rope.dimension_count"), static_cast<uint32_t>(shape.head_dim));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = {.key = "hidden_act", .names = kActivations},
    .epsilon = kLayerNormEpsilon,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Jais 2", .read = nemotron::Read, .hf = kHf};

}  // namespace kvant::arch::jais2
