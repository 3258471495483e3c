// Facts that a model file gives without being run, for the commands that show them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/gguf.h"

namespace kvant::tools {

struct ModelFacts {
  struct TypeShare {
    std::string name;  // "Q4_K"
    uint64_t tensors = 0;
    uint64_t values = 0;
    uint64_t bytes = 0;
  };
  std::string architecture;      // "" if the file names none
  std::string description;       // "llama 1.10 B Q4_K": architecture, parameters, main type
  uint64_t parameters = 0;       // values of all tensors
  uint64_t tensor_bytes = 0;     // without padding
  std::vector<TypeShare> types;  // most values first
  double bits_per_weight() const;
};

ModelFacts GatherFacts(const formats::GgufFile& file);

std::string SizeText(uint64_t bytes);   // "636.18 MiB"
std::string CountText(uint64_t count);  // "1.10 B"

}  // namespace kvant::tools
