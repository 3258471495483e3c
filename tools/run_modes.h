// The options of `kvant run`, and its ways of generating beside one streamed text: beam search and
// batches.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/generate/generator.h"
#include "engine/generate/prompt.h"
#include "tools/common_options.h"
#include "tools/console.h"

namespace kvant::tools {

struct BeamRunOptions {
  int64_t count = 1;
  std::optional<std::string> length_penalty;
  std::optional<std::string> early_stopping;
  int64_t num_return = 1;
  int64_t groups = 1;
  float diversity_penalty = 0.0f;
  std::optional<std::string> scoring;
  float patience = 1.0f;
  int64_t min_tokens = 0;
  int64_t no_repeat_ngram = 0;
  bool sample = false;
};

struct BatchRunOptions {
  std::optional<std::string> prompts;
  int64_t samples = 1;
  int64_t parallel = 8;
};

// What a run takes up and leaves behind.
struct ContinueRunOptions {
  std::optional<std::string> session;
  std::optional<std::string> shift;  // "keep=N"
  std::optional<std::string> draft;
  int64_t draft_tokens = 8;
};

struct RunOptions {
  ModelGroup model;
  TextGroup prompt;
  SessionGroup session;
  SamplingGroup sampling;
  BeamRunOptions beams;
  BatchRunOptions batch;
  ContinueRunOptions continuation;
  int64_t max_tokens = -1;
  std::vector<std::string> stop_texts;
  bool ignore_eos = false;
  bool echo = false;
  bool special = false;
  bool json = false;
  bool quiet = false;

  std::vector<std::string> StopTexts() const;
};

// kInvalid for options that a beam search does not look at, and for its own without one.
Status CheckBeamModes(const RunOptions& options);

void AddBeamOptions(OptionList& list, BeamRunOptions& options);
void AddBatchOptions(OptionList& list, BatchRunOptions& options);

// Each is the whole of the command after parsing; `finish_reason` tells whether it was interrupted.
Status RunBeams(const RunOptions& options, const Positionals& positionals, ResultStream& out,
                FinishReason* finish_reason);
Status RunBeamBatch(const RunOptions& options, const Positionals& positionals,
                    std::span<const std::string> prompts, ResultStream& out,
                    FinishReason* finish_reason);
Status RunBatch(const RunOptions& options, const Positionals& positionals, ResultStream& out,
                FinishReason* finish_reason);

}  // namespace kvant::tools
