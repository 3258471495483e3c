// The places of the chain of logit stages, one row each. A new stage is one file with a row and a
// line in logit_stage_list.inl; its options are a field of LogitOptions, or come with a source
// below.
//
// Thread-safety: rows are constant.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kvant/beam_options.h"
#include "kvant/logit_stage.h"
#include "kvant/sampler.h"
#include "kvant/tokenizer.h"

namespace kvant {

using LogitStages = std::vector<std::unique_ptr<LogitStage>>;

// All that stages are made from; null or empty: there is none.
struct LogitStageSources {
  size_t vocab = 0;
  const Tokenizer* tokenizer = nullptr;
  std::span<const LogitBias> biases = {};   // of tokens within the vocabulary
  const BeamOptions* processors = nullptr;  // they have passed CheckBeamOptions
  const LogitOptions* logits = nullptr;
};

struct LogitStageRow {
  enum class Owner : uint8_t {
    kSampler,  // the stages stay with a sampler from one request to the next
    kRequest,
  };
  enum class Code : uint8_t {
    kOwn,      // leaves neither NaN nor +infinity
    kCallers,  // may leave anything
  };
  Owner owner;
  Code code;
  // Adds the stages that the sources ask for to those of this place.
  Status (*add)(const LogitStageSources& sources, LogitStages& stages);
};

#define KVANT_LOGIT_STAGE(name) extern const LogitStageRow name;
#include "engine/generate/logit_stages/logit_stage_list.inl"
#undef KVANT_LOGIT_STAGE

// All rows, in order.
std::span<const LogitStageRow* const> AllLogitStages();

}  // namespace kvant
