// Qwen 2 VL and 2.5 VL, their text models: Qwen 2, whose rope gives sections of its pairs the time
// and the place in an image. All are one number in a text.
#include "base/result.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"

namespace kvant::arch::qwen2vl {
namespace {

constexpr std::string_view kName = "qwen2vl";

constexpr std::string_view kClasses[] = {"Qwen2VLForConditionalGeneration",
                                         "Qwen2_5_VLForConditionalGeneration"};
constexpr double kBase = 1e6;

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                               kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  KVANT_TRY(RefuseTrue(config, "use_sliding_window"));
  KVANT_TRY(RefuseWindows(config));
  KVANT_ASSIGN(const RopeSettings rope, RopeSettings::Read(config));
  KVANT_TRY(AddRopeSections(rope, {16, 24, 24}, out));
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
const Family kFamily = {.name = kName,
                        .models = "Qwen 2 VL and 2.5 VL",
                        .read = qwen2::Read,
                        .hf = kHf,
                        .mix = {.small_values = SmallValues::kAlways}};

}  // namespace kvant::arch::qwen2vl
