// The names that settings of samplers have in requests: those of the command line with underscores,
// and llama-server's where they differ.
//
// Thread-safety: pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/generate/samplers/stage.h"
#include "tools/serve/request/request_fields.h"

namespace kvant::tools {

// All names, separated by commas.
std::string RequestNames(const SamplerSetting& setting);
// The one that answers have.
std::string AnswerName(const SamplerSetting& setting);

// The field `samplers`: a list of names, or a text with a letter for each.
Refusal ReadSamplerNames(const std::string& name, const RequestJson& value,
                         std::optional<std::vector<std::string>>* out);

}  // namespace kvant::tools
