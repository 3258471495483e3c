// PaddleOCR-VL, its text model: the layer of Qwen 2, mostly without biases. Its rope gives sections
// of pairs the time and the place in an image, which are one number in a text.
#include "base/result.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"

namespace kvant::arch::paddleocr {
namespace {

constexpr std::string_view kName = "paddleocr";
constexpr double kBase = 500000.0;

constexpr std::string_view kClasses[] = {"PaddleOCRVLForConditionalGeneration"};

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfAttentionOutput,
                               kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown);

Status AddParameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
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
const Family kFamily = {.name = kName, .models = "PaddleOCR-VL", .read = qwen2::Read, .hf = kHf};

}  // namespace kvant::arch::paddleocr
