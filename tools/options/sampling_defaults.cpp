#include "tools/options/sampling_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <variant>

#include "engine/generate/model_sampling.h"
#include "engine/generate/samplers/stage.h"
#include "formats/gguf.h"

namespace kvant::tools {

std::string TakeModelSampling(const std::string& model_path, const OptionList& list,
                              SamplingGroup& sampling) {
  const auto file =
      formats::GgufFile::Open(model_path, FileAccess::kMap, formats::UnreadableTensors::kListed);
  if (!file.ok()) return "";
  const ModelSampling model = ReadModelSampling(*file);
  std::string taken;
  const auto note = [&](const std::string& text) {
    taken += fmt::format("{}{}", taken.empty() ? "" : " ", text);
  };
  for (const ModelSampling::Setting& entry : model.settings) {
    const SamplerSetting& setting = *entry.setting;
    const std::string flag = FirstFlag(setting);
    if (list.Given(flag)) continue;
    if (const auto* member = std::get_if<float SamplingOptions::*>(&setting.value)) {
      sampling.options.** member = static_cast<float>(entry.value);
      note(fmt::format("{} {}", flag, static_cast<float>(entry.value)));
    } else {
      sampling.whole[setting.name] = static_cast<int64_t>(entry.value);
      note(fmt::format("{} {}", flag, static_cast<int64_t>(entry.value)));
    }
  }
  if (model.samplers.has_value() && !list.Given("--samplers") && !list.Given("--sampler-seq")) {
    sampling.options.samplers = model.samplers;
    note(fmt::format("--samplers '{}'", fmt::join(*model.samplers, ";")));
  }
  if (taken.empty()) return "";
  return fmt::format("sampling as the model's file recommends: {}", taken);
}

}  // namespace kvant::tools
