// A beam's logits as the log-probabilities that a search adds up: softmax, the processors and the
// filters of sampling, in the order of include/kvant/beam_options.h.
//
// NaN counts as -infinity, +infinity as the largest number; a token at -infinity cannot be chosen.
// Equal logits and texts give equal bits on every machine. Nothing is allocated after creation.
// Thread-safety: one thread at a time per object.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvant/beam_options.h"

namespace kvant {

struct BeamProcessor;

// The text that the next token follows. Where the model reads a source of its own, the prompt is
// that of its decoder.
struct BeamText {
  std::span<const TokenId> tokens = {};  // all of it; may be left out unless needs_tokens()
  int64_t prompt = 1;                    // how many tokens are the prompt's
  int64_t generated = 0;                 // and how many are not
  int64_t generated_max = INT64_MAX;     // of which there may be so many
};

class BeamLogProbs {
 public:
  // The options must have passed CheckBeamOptions.
  BeamLogProbs(const BeamOptions& options, int32_t vocab_size);

  // Whether Process looks at the tokens of a text at all.
  bool needs_tokens() const;

  // Takes a row of logits. Whatever the caller subtracts from the row, [vocab], comes before
  // everything that Process does; for hf with several beams the row is of log-probabilities.
  std::span<float> Load(std::span<const float> logits);

  // The log-probabilities, [vocab], of the token after `text`, from the row that was loaded; valid
  // until the next Load. Tokens that are banned or filtered out are at -infinity.
  std::span<const float> Process(const BeamText& text);

 private:
  struct Entry {
    float log_prob;
    TokenId id;
  };

  void Normalize();
  void Filter();
  void TakeTopK(size_t count);
  void TakeTopP();

  BeamOptions options_;
  std::vector<const BeamProcessor*> processors_;  // those that the options use, in order
  bool on_logits_;                                // these come before the softmax
  size_t keep_min_;                               // tokens that filters leave at least
  std::vector<float> row_;                        // [vocab]
  std::vector<uint32_t> seen_;  // [vocab] if tokens are looked at: the call that saw it last
  uint32_t call_ = 0;
  std::vector<Entry> entries_;  // scratch of Filter, up to [vocab]
};

}  // namespace kvant
