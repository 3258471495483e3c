// Processors of the probabilities of the next token: one row each, in Hugging Face's order
// (`_get_logits_processor` of transformers 4.57.1, generation/utils.py). Options and their meaning:
// include/kvant/beam_options.h. A new processor is its options and a row.
//
// Thread-safety: rows are constant; the state belongs to one search.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvant/beam_options.h"
#include "kvant/logit_stage.h"

namespace kvant {

// One row of a text or a beam on its way through the processors.
struct BeamProcessing {
  const BeamOptions& options;
  const LogitText& text;
  std::span<float> row;      // [vocab], log-probabilities or logits
  std::span<uint32_t> seen;  // [vocab]: the last call that has seen a token, where tokens are read
  uint32_t call;             // the number of this one
};

struct BeamProcessor {
  enum class Reads : uint8_t { kLengths, kTokens };  // of a text
  enum class Scorings : uint8_t { kAll, kHf };       // those that it makes sense for

  const char* name;  // in messages
  Scorings scorings;
  Reads reads;
  bool (*used)(const BeamOptions& options);
  void (*apply)(const BeamProcessing& step);
};

// All processors, in order.
std::span<const BeamProcessor> AllBeamProcessors();

// Whether processors come before the softmax rather than after it.
bool ProcessesLogits(const BeamOptions& options);

// Logits as log-probabilities. A row without a finite value stays as it is.
void ToLogProbs(std::span<float> row);

}  // namespace kvant
