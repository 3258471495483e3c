#include "tools/options/model_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/generate/model_generation.h"
#include "tools/options/sampling_defaults.h"

namespace kvant::tools {
namespace {

Result<std::string> TakeModelSearch(const Model& model, BeamRunOptions& beams) {
  KVANT_ASSIGN(const ModelGeneration own, ReadModelGeneration(model.file()));
  if (own.names.empty()) return std::string();
  beams.model = own.options;
  beams.first_tokens = own.first_tokens;
  beams.model_asks = true;
  if (beams.writes_text) {
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
  options.beams.has_encoder = model.has_encoder();
  options.beams.reads = model.frame_shape();
  TakeTextMode(list, options);
  if (options.no_model_defaults) return std::string();
  const std::string sampling = TakeModelSampling(model, list, options.sampling);
  KVANT_ASSIGN(const std::string search, TakeModelSearch(model, options.beams));
  if (sampling.empty() || search.empty()) return sampling + search;
  return fmt::format("{}; {}", sampling, search);
}

}  // namespace kvant::tools
