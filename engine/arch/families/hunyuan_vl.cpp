// Hunyuan VL and OCR, their text models: the layer of Hunyuan's dense models. The file has the base
// of the rope and the factor that it follows from; sections of pairs are turned by places in an
// image, which are the position in a text.
#include <cmath>

#include "base/result.h"
#include "engine/arch/families/shared_graphs.h"
#include "engine/arch/family.h"
#include "engine/arch/hf/hf_settings.h"
#include "engine/arch/hf/hf_tensors.h"
#include "engine/arch/hf/rope_scaling.h"

namespace kvant::arch::hunyuan_vl {
namespace {

constexpr std::string_view kName = "hunyuan_vl";
constexpr const char* kAlphaKey = "rope.scaling.alpha";

Result<ModelSpec> Read(const Metadata& metadata) {
  KVANT_ASSIGN(ModelSpec model, hunyuan_dense::Read(metadata));
  KVANT_ASSIGN(const auto given, metadata.file().GetF32(metadata.Key(kAlphaKey)));
  if (given.value_or(0) == 0) return model;
  KVANT_ASSIGN(const float alpha, metadata.Positive(kAlphaKey));
  for (RopeSpec& rope : model.ropes) rope.base = BaseWithAlpha(rope.base, alpha, rope.n_rot);
  return model;
}

constexpr std::string_view kClasses[] = {"HunYuanVLForConditionalGeneration"};
constexpr std::string_view kRopeNames[] = {"alpha", "xdrope_section"};

constexpr auto kTensors = Join(kHfEnds, kHfNormBeforeAttention, kHfSeparateQkv, kHfQueryKeyNorms,
                               kHfAttentionOutput, kHfNormBeforeFfn, kHfSeparateGateUp, kHfDown);

// Folders of before transformers 5 call the way of stretching and its sections by other names.
Status AddParameters(const JsonObject& config, const HfShape&, Parameters& out) {
  KVANT_ASSIGN(const RopeSettings rope, RopeSettings::Read(config));
  const bool older = rope.Has("xdrope_section");
  if (older || rope.Has("mrope_section")) {
    KVANT_TRY(AddRopeSections(rope, {}, out, older ? "xdrope_section" : "mrope_section"));
  }
  KVANT_ASSIGN(const auto scaling, ReadRopeScaling(config));
  if (!scaling) return {};
  if (scaling->type != "dynamic" && scaling->type != "xdrope") {
    return scaling->settings.UnsupportedType("default, dynamic or xdrope with alpha");
  }
  KVANT_ASSIGN(const auto alpha, scaling->settings.Number("alpha"));
  if (!alpha || !(*alpha > 0)) return scaling->settings.Wrong("alpha", "a positive number");
  out.writer->AddF32(out.Key(kAlphaKey), static_cast<float>(*alpha));
  return {};
}

constexpr HfFamily kHf[] = {{
    .classes = kClasses,
    .arch = kName,
    .activation = kSiluActivation,
    .rope_names = kRopeNames,
    .tensors = kTensors,
    .add_parameters = AddParameters,
}};

}  // namespace

extern const Family kFamily;
const Family kFamily = {.name = kName, .models = "Hunyuan VL", .read = Read, .hf = kHf};

}  // namespace kvant::arch::hunyuan_vl
