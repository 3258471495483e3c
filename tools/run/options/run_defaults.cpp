#include "tools/run/options/run_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "engine/generate/samplers/stage.h"
#include "kvant/model_defaults.h"
#include "tools/options/sampling_defaults.h"

namespace kvant::tools {
namespace {

// Options of the samplers, but the penalty of repetition, which searches have, too.
bool DrawsTokens(const OptionList& list) {
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) {
      if (setting.name != "repeat-penalty" && list.Given(FirstFlag(setting.flags))) return true;
    }
  }
  const auto given = [&](const char* name) { return list.Given(name); };
  return std::ranges::any_of(
      std::array{"--seed", "--logit-bias", "--dry-sequence-breaker", "--samplers", "--sampler-seq"},
      given);
}

// Whether one text of a model with an encoder is sampled, or kept in a file, instead of a search.
void TakeTextMode(const OptionList& list, RunOptions& options) {
  TranslationOptions& translation = options.translation;
  const SearchOptions& search = options.search;
  if (!translation.has_encoder || search.count.has_value() || search.sample) return;
  translation.draws = DrawsTokens(list) || options.batch.samples > 1;
  const bool one = list.Given("--session") || list.Given("--stop");
  translation.writes_text = translation.draws || one;
}

Result<std::string> TakeModelSearch(const Model& model, RunOptions& options) {
  const Result<ModelGeneration>& read = model.defaults().search;
  if (!read.ok()) return read.error();
  const ModelGeneration& own = *read;
  if (own.names.empty()) return std::string();
  options.search.model = own.options;
  options.translation.first_tokens = own.first_tokens;
  options.search.model_asks = true;
  if (options.translation.writes_text) {
    std::vector<std::string_view> names = own.names;
    std::erase_if(names, [](std::string_view name) {
      return name.starts_with("num_beams") || name.starts_with("length_penalty") ||
             name.starts_with("early_stopping");
    });
    if (names.empty()) return std::string();
    return fmt::format("force and ban tokens as the model's file asks: {}", fmt::join(names, " "));
  }
  return fmt::format("search as the model's file asks where no option says otherwise: {}",
                     fmt::join(own.names, " "));
}

}  // namespace

Result<std::string> TakeModelDefaults(const Model& model, const OptionList& list,
                                      RunOptions& options) {
  options.translation.has_encoder = model.has_encoder();
  options.frames.reads = model.frame_shape();
  TakeTextMode(list, options);
  if (options.no_model_defaults) return std::string();
  const std::string sampling = TakeModelSampling(model, list, options.sampling);
  KVANT_ASSIGN(const std::string search, TakeModelSearch(model, options));
  if (sampling.empty() || search.empty()) return sampling + search;
  return fmt::format("{}; {}", sampling, search);
}

}  // namespace kvant::tools
