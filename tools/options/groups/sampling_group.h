// The options of the samplers: one for each setting in their rows, the chain, DRY's breakers,
// biases and the seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/sampler.h"
#include "tools/options/command_line.h"

namespace kvant::tools {

// How the next token is chosen.
struct SamplingGroup {
  SamplingOptions options;
  int64_t seed = -1;
  std::vector<std::string> breakers;  // of DRY, as given

  void Add(OptionList& list);
  SamplingOptions Options() const;

  // kInvalid for --adaptive-target without adaptive_p.
  Status Check(const OptionList& list) const;

  // kInvalid if an option was given that beams do not know; they know some with `sample` only.
  static Status CheckBeams(const OptionList& list);

 private:
  void AddChain(OptionList& list);
};

}  // namespace kvant::tools
