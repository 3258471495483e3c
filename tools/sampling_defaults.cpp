#include "tools/sampling_defaults.h"

#include <fmt/format.h>

#include "engine/generate/model_sampling.h"
#include "formats/gguf.h"

namespace kvant::tools {

std::string TakeModelSampling(const std::string& model_path, const OptionList& list,
                              SamplingGroup& sampling) {
  const auto file = formats::GgufFile::Open(model_path);
  if (!file.ok()) return "";
  const ModelSampling model = ReadModelSampling(*file);
  std::string taken;
  const auto take = [&](const char* option, const auto& recommended, auto& target) {
    if (!recommended || list.Given(option)) return;
    target = *recommended;
    taken += fmt::format("{}{} {}", taken.empty() ? "" : " ", option, *recommended);
  };
  take("--temp", model.temperature, sampling.options.temperature);
  take("--top-k", model.top_k, sampling.top_k);
  take("--top-p", model.top_p, sampling.options.top_p);
  take("--min-p", model.min_p, sampling.options.min_p);
  take("--repeat-penalty", model.repeat_penalty, sampling.options.repeat_penalty);
  take("--repeat-last-n", model.repeat_last_n, sampling.repeat_last_n);
  if (taken.empty()) return "";
  return fmt::format("sampling as the model's file recommends: {}", taken);
}

}  // namespace kvant::tools
