// The sampling settings that the authors of a model recommend: the entries under general.sampling
// of its file, with llama.cpp's keys. A caller uses them where its own user asks for nothing else.
//
// Thread-safety: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "kvant/sampler.h"

namespace kvant {

struct ModelSampling {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repeat_penalty;
  std::optional<int32_t> repeat_last_n;
  // Keys that are not used: kvant's sampler has no such setting, or the value makes no sense.
  std::vector<std::string> unused;
};

ModelSampling ReadModelSampling(const formats::GgufFile& file);

}  // namespace kvant
