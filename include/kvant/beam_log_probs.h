// A beam's logits as the log-probabilities that a search adds up: the chain of stages of
// logit_stage.h, whose processors apply the softmax, and the filters of sampling.
//
// NaN counts as -infinity, +infinity as the largest number; a token at -infinity cannot be chosen.
// Equal logits and texts give equal bits on every machine. Nothing is allocated after creation.
// Thread-safety: one thread at a time per object.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvant/beam_options.h"
#include "kvant/logit_chain.h"
#include "kvant/logit_stage.h"
#include "kvant/result.h"

namespace kvant {

class BeamLogProbs {
 public:
  // The options must have passed CheckBeamOptions.
  BeamLogProbs(const BeamOptions& options, int32_t vocab_size);

  // The stages of a text without tokens: each text is processed with a copy that has accepted its
  // tokens. Texts share one copy unless it keeps_state().
  const LogitChain& stages() const { return stages_; }
  // Adds the caller's stages.
  Status Add(const LogitOptions& options, const Tokenizer* tokenizer);

  // The log-probabilities, [vocab], of the token after `text`, from logits, [vocab]; valid until
  // the next call. Tokens that are banned or filtered out are at -infinity. Empty where a stage
  // that ends texts has left no token.
  Result<std::span<const float>> Process(std::span<const float> logits, const LogitText& text,
                                         LogitChain& stages);

 private:
  struct Entry {
    float log_prob;
    TokenId id;
  };

  void Filter();
  void TakeTopK(size_t count);
  void TakeTopP();

  BeamOptions options_;
  LogitChain stages_;
  size_t keep_min_;             // tokens that filters leave at least
  std::vector<float> row_;      // [vocab]
  std::vector<Entry> entries_;  // scratch of Filter, up to [vocab]
};

}  // namespace kvant
