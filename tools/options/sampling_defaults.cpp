#include "tools/options/sampling_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/generate/model_sampling.h"
#include "engine/generate/samplers/stage.h"

namespace kvant::tools {

std::string TakeModelSampling(const Model& model, const OptionList& list, SamplingGroup& sampling) {
  const ModelSampling own = ReadModelSampling(model.file());
  std::string taken;
  const auto note = [&](const std::string& text) {
    taken += fmt::format("{}{}", taken.empty() ? "" : " ", text);
  };
  for (const ModelSampling::Setting& entry : own.settings) {
    const SamplerSetting& setting = *entry.setting;
    const std::string flag = FirstFlag(setting);
    if (list.Given(flag)) continue;
    if (setting.is_whole()) {
      sampling.whole[setting.name] = static_cast<int64_t>(entry.value);
      note(fmt::format("{} {}", flag, static_cast<int64_t>(entry.value)));
    } else {
      setting.Set(sampling.options, entry.value);
      note(fmt::format("{} {}", flag, static_cast<float>(entry.value)));
    }
  }
  if (own.samplers.has_value() && !list.Given("--samplers") && !list.Given("--sampler-seq")) {
    sampling.options.samplers = own.samplers;
    note(fmt::format("--samplers '{}'", fmt::join(*own.samplers, ";")));
  }
  if (taken.empty()) return "";
  return fmt::format("sampling as the model's file recommends: {}", taken);
}

}  // namespace kvant::tools
