// Generates many texts side by side: requests join a running batch as room becomes free and leave
// it when they end; samples of one prompt share its cache.
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
  // How many texts to generate. The seed of each is that of the one before, plus one.
  int32_t samples = 1;
  // Replaces BatchOptions::sampling for this request.
  std::optional<SamplingOptions> sampling = {};
  // For encoder-decoders: the source that the encoder reads, as tokens or as frames; one of the two
  // is empty. The prompt is then the beginning of the generated text. The source is encoded once
  // for all samples.
  std::vector<TokenId> source = {};
  std::vector<float> frames = {};
};

struct BatchOptions {
  SamplingOptions sampling;  // a seed that is not set is drawn for each text
  int64_t max_tokens = -1;   // as in GenerateOptions
  std::vector<std::string> stop_texts;
  bool ignore_eos = false;
  bool special = false;
  const std::atomic<bool>* cancel = nullptr;
  // Called with each piece of text when it is final; returning false ends that text. May be empty.
  std::function<bool(size_t request, int32_t sample, std::string_view piece)> on_piece = {};
  // In each step, at most this many tokens of prompts are processed beside one token of each
  // running text. 0: prompts go first, as a whole.
  int64_t prompt_slice = 0;
  LogitOptions logits = {};                    // as in GenerateOptions; stages for each text
  std::optional<BeamOptions> processors = {};  // as in GenerateOptions
};

struct BatchText {
  size_t request = 0;
  int32_t sample = 0;
  uint64_t seed = 0;
  std::vector<TokenId> ids;  // the end token excluded
  std::string text;
  FinishReason finish_reason = FinishReason::kCancelled;
};

// Generates texts for all requests and calls `on_text` with each text when it ends. Texts that end
// in the same step come in the order of requests and samples. If `on_text` returns false, all texts
// end. At most as many texts as the runner has sequences run at the same time. kInvalid for an
// empty prompt or for a request with more samples than the runner has sequences, kContextFull for a
// prompt that does not fit. Once the cancel flag is set, texts that have begun are handed over as
// they are and kCancelled is returned.
Status GenerateBatch(Runner& runner, const Tokenizer& tokenizer,
                     std::span<const BatchRequest> requests, const BatchOptions& options,
                     const std::function<bool(const BatchText& text)>& on_text);

}  // namespace kvant
