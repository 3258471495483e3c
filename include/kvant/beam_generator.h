// Beam search on a model: prompts are processed once, then forked. Beams are rows of one step, and
// the tokens that beams share are stored and read once.
//
// Requests run side by side, each with its own search. A request that has finished has no rows any
// more and makes room for the next request, whose prompt is processed in the steps of the other
// requests' beams.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kvant/beam_search.h"
#include "kvant/result.h"
#include "kvant/runner.h"

namespace kvant {

struct BeamGeneration {
  std::vector<BeamHypothesis> hypotheses;  // best first
  int64_t steps = 0;                       // tokens by which the beams grew
  bool cancelled = false;                  // hypotheses are those found before it was
};

enum class BeamStep : uint8_t {
  kGoOn,
  kEndRequest,  // the request ends with what it has found; the others go on
  kEndAll,
};

// Called after each step of a request; after its last one, search.done() is true.
using BeamStepFunction = std::function<BeamStep(size_t request, const BeamSearch& search)>;

struct BeamGenerateOptions {
  BeamOptions search;
  LogitOptions logits = {};                   // as in GenerateOptions; stages for each beam
  size_t parallel = SIZE_MAX;                 // requests under way at the same time
  BeamStepFunction on_step = {};              // may be empty
  const std::atomic<bool>* cancel = nullptr;  // once set, searches end with what they have found
  // Where there is one prompt only: a sequence that holds its beginning, all but its last token at
  // most. Beams begin as forks of it, and it stays as it is; there must be room beside it.
  std::optional<SequenceId> beginning = {};
  // For encoder-decoders: the source of each prompt. The prompts are beginnings of the generated
  // texts. Equal sources are encoded once.
  std::span<const std::vector<TokenId>> sources = {};
  // The sources of encoders that read frames of features (Runner::EncodeFrames).
  std::span<const std::vector<float>> frames = {};
};

// Searches for a continuation of every prompt, of at most as many tokens as the context has room
// for (the last token needs no room). The runner must have room for `beams` more sequences for each
// request under way; all are freed at the end. kContextFull for a prompt that does not fit, before
// anything is processed; other errors are those of Runner and BeamSearch.
Result<std::vector<BeamGeneration>> GenerateBeams(Runner& runner,
                                                  std::span<const std::vector<TokenId>> prompts,
                                                  const BeamGenerateOptions& options);

}  // namespace kvant
