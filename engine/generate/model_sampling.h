// The sampling settings that the authors of a model recommend: the entries under general.sampling
// of its file, with llama.cpp's keys. A caller uses them where its own user asks for nothing else.
//
// Thread-safety: pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/generate/samplers/stage.h"
#include "formats/gguf.h"

namespace kvant {

struct ModelSampling {
  struct Setting {
    const SamplerSetting* setting;
    double value;  // within the setting's range
  };
  std::vector<Setting> settings;
  std::optional<std::vector<std::string>> samplers;  // general.sampling.sequence
  // Keys that are not used: kvant's samplers have no such setting, or the value makes no sense.
  std::vector<std::string> unused;

  // The value of a setting by its key behind general.sampling.; nothing if it is not there.
  std::optional<double> Find(std::string_view key) const;
};

ModelSampling ReadModelSampling(const formats::GgufFile& file);

}  // namespace kvant
