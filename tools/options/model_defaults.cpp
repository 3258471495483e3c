#include "tools/options/model_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/arch/spec.h"
#include "engine/generate/model_generation.h"
#include "formats/gguf.h"
#include "tools/options/sampling_defaults.h"

namespace kvant::tools {
namespace {

Result<std::string> TakeModelSearch(const formats::GgufFile& file, BeamRunOptions& beams) {
  KVANT_ASSIGN(const ModelGeneration model, ReadModelGeneration(file));
  if (model.names.empty()) return std::string();
  beams.model = model.options;
  beams.first_tokens = model.first_tokens;
  beams.model_asks = true;
  if (beams.writes_text) {
    std::vector<std::string_view> names = model.names;
    std::erase_if(names, [](std::string_view name) {
      return name.starts_with("num_beams") || name.starts_with("length_penalty") ||
             name.starts_with("early_stopping");
    });
    if (names.empty()) return std::string();
    return fmt::format("force and ban tokens as the model's file asks: {}", fmt::join(names, " "));
  }
  return fmt::format("search as the model's file asks where no option says otherwise: {}",
                     fmt::join(model.names, " "));
}

}  // namespace

Result<std::string> TakeModelDefaults(const std::string& model_path, const OptionList& list,
                                      RunOptions& options) {
  // Of a file that cannot be read, opening the model tells more.
  const auto file = formats::GgufFile::Open(model_path);
  if (!file.ok()) return std::string();
  const auto spec = arch::ReadSpec(*file);
  options.beams.has_encoder = spec.ok() && spec->encoder.has_value();
  if (options.beams.has_encoder && spec->encoder->frames.has_value()) {
    options.beams.reads = FrameShape{spec->encoder->frames->bins,
                                     graph::kFramesPerPosition * spec->encoder->source_max};
  }
  TakeTextMode(list, options);
  if (options.no_model_defaults) return std::string();
  const std::string sampling = TakeModelSampling(model_path, list, options.sampling);
  KVANT_ASSIGN(const std::string search, TakeModelSearch(*file, options.beams));
  if (sampling.empty() || search.empty()) return sampling + search;
  return fmt::format("{}; {}", sampling, search);
}

}  // namespace kvant::tools
