// How well an encoder-decoder predicts texts from their sources: the perplexity of the second texts
// of pairs, as the loss of Hugging Face's classes has it. A file has one JSON object per line:
// {"source": text, "target": text}. Both get the tokens that the tokenizer adds to texts; what is
// predicted begins behind the decoder's first token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/evaluate/estimate.h"
#include "engine/text/languages.h"
#include "kvant/session.h"

namespace kvant::evaluate {

struct TextPair {
  int64_t line = 0;  // of the file, from 1
  std::string source;
  std::string target;
};

struct TextPairs {
  std::vector<TextPair> pairs;
  std::vector<std::string> problems;  // "FILE:LINE: what is wrong", one per bad line
};

// Blank lines are skipped. `file` is used in messages.
TextPairs ParseTextPairs(std::string_view text, const std::string& file);

struct PairTokens {
  std::vector<TokenId> source;
  std::vector<TokenId> target;  // begins with the decoder's first token
};

// kInvalid where the model has no encoder, names no first token, or a text has no tokens, and where
// the language of the target is needed and neither named nor forced by the file.
Result<PairTokens> EncodePair(const TextPair& pair, const Model& model,
                              const LanguageNames& names = {});

struct PairReport {
  int64_t pairs = 0;
  int64_t tokens = 0;   // predicted
  Estimate perplexity;  // e^nll
  Estimate nll;         // nats per token
};

class PairScorer {
 public:
  // The session must hold the longest target; it is changed.
  explicit PairScorer(Session& session) : session_(session) {}

  // Returns the errors of Runner::Encode and ScoreTokens.
  Status Add(const PairTokens& pair);
  PairReport report() const;

 private:
  Session& session_;
  Sums nll_;
  int64_t pairs_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace kvant::evaluate
