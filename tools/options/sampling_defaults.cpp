#include "tools/options/sampling_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/generate/samplers/stage.h"
#include "kvant/model_defaults.h"

namespace kvant::tools {
namespace {

const SamplerSetting* FindSetting(std::string_view name) {
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) {
      if (setting.name == name) return &setting;
    }
  }
  return nullptr;
}

}  // namespace

std::string TakeModelSampling(const Model& model, const OptionList& list, SamplingGroup& sampling) {
  const ModelDefaults& own = model.defaults();
  std::string taken;
  const auto note = [&](const std::string& text) {
    taken += fmt::format("{}{}", taken.empty() ? "" : " ", text);
  };
  for (const RecommendedNumber& entry : own.sampling_numbers) {
    const SamplerSetting* const found = FindSetting(entry.name);
    if (found == nullptr) continue;
    const SamplerSetting& setting = *found;
    const std::string flag = FirstFlag(setting.flags);
    if (list.Given(flag)) continue;
    setting.Set(sampling.options, entry.value);
    if (setting.is_whole()) {
      note(fmt::format("{} {}", flag, static_cast<int64_t>(entry.value)));
    } else {
      note(fmt::format("{} {}", flag, static_cast<float>(entry.value)));
    }
  }
  const auto& samplers = own.sampling.samplers;
  if (samplers.has_value() && !list.Given("--samplers") && !list.Given("--sampler-seq")) {
    sampling.options.samplers = samplers;
    note(fmt::format("--samplers '{}'", fmt::join(*samplers, ";")));
  }
  if (taken.empty()) return "";
  return fmt::format("sampling as the model's file recommends: {}", taken);
}

}  // namespace kvant::tools
