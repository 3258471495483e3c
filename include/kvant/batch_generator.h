// Many generations side by side: requests join a running batch as room becomes free and leave it
// when they end; samples of one prompt share its cache.
//
// Every request gets the text that it would get alone: it has a sampler of its own, and rows of a
// step have the bits of single rows (runner.h). Where memory is full the text that came last waits
// and is computed again from its tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/generator.h"
#include "kvant/result.h"
#include "kvant/runner.h"
#include "kvant/sampler.h"
#include "kvant/tokenizer.h"

namespace kvant {

struct BatchRequest {
  std::vector<TokenId> prompt;
  // One text for each; `seed` 0, 1, 2 ... beyond that of the first.
  int32_t samples = 1;
  // Instead of BatchOptions::sampling.
  std::optional<SamplingOptions> sampling = {};
};

struct BatchOptions {
  SamplingOptions sampling;  // a seed that is not set is drawn for each text
  int64_t max_tokens = -1;   // as in GenerateOptions
  std::vector<std::string> stop_texts;
  bool ignore_eos = false;
  bool special = false;
  const std::atomic<bool>* cancel = nullptr;
  // May be empty. Receives each piece of text when it is final; false ends that text.
  std::function<bool(size_t request, int32_t sample, std::string_view piece)> on_piece = {};
  // Tokens of prompts that are processed beside a token of each text; 0: prompts go first.
  int64_t prompt_slice = 0;
};

struct BatchText {
  size_t request = 0;
  int32_t sample = 0;
  uint64_t seed = 0;
  std::vector<TokenId> ids;  // the end token excluded
  std::string text;
  FinishReason finish_reason = FinishReason::kCancelled;
};

// Generates texts for all requests and hands each over when it ends, in the order of requests and
// samples those that end together; false ends all. At most as many texts as the runner has
// sequences are under way. kInvalid for an empty prompt or more samples than that, kContextFull for
// a prompt that does not fit. With the cancel flag set, texts that have begun are handed over as
// they are and kCancelled is returned.
Status GenerateBatch(Runner& runner, const Tokenizer& tokenizer,
                     std::span<const BatchRequest> requests, const BatchOptions& options,
                     const std::function<bool(const BatchText& text)>& on_text);

}  // namespace kvant
