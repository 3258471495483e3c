// Qwen 3 VL, its text model: Qwen 3, whose rope gives sections of its pairs the time and the place
// in an image. All are one number in a text.
#include "base/result.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"

namespace kvant::arch::qwen3vl {
namespace {

constexpr std::string_view kName = "qwen3vl";

constexpr std::string_view kClasses[] = {"Qwen3VLForConditionalGeneration"};
constexpr double kBase = 5e6;

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfHeadNorms,
                               kHfAttentionOutput, kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_ASSIGN(const RopeSettings rope, RopeSettings::Read(config));
  KVANT_TRY(AddRopeSections(rope, {24, 20, 20}, out));
  return AddRopeScaling(config, shape, shape.head_dim, out);
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_base = kBase,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Qwen 3 VL", .read = qwen3::Read, .hf = kHf};

}  // namespace kvant::arch::qwen3vl
