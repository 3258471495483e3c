// Models that several tests of the program run.
#pragma once

#include <string>

#include "tests/shared_data.h"

namespace kvant::test {

inline std::string SmallModel() {
  return SourcePath("tests/reference/random_llamas/gqa-6q3kv-tied-f16.gguf");
}

inline std::string TinyStories() {
  return SharedPath("models/tinystories-656k/TinyStories-656K-f32.gguf");
}

}  // namespace kvant::test
