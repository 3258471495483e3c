// Multiple-choice tasks: which of several continuations of a context does a model find likeliest?
//
// A task file has one JSON object per line: {"context": text, "choices": [texts], "answer": index
// of the right choice, from 0}. Context and choice are joined by one space unless either has white
// space there or the context is empty. The tokens that the choice adds to the context's are scored;
// BOS comes first where the vocabulary asks for it.
//
// Three scores per choice: the sum of the log-probabilities, the sum per byte of the choice's text
// (acc_norm of lm-evaluation-harness, for ASCII texts), and the sum per scored token
// (llama-perplexity).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/evaluate/perplexity.h"
#include "kvant/session.h"

namespace kvant::evaluate {

struct ChoiceTask {
  int64_t line = 0;  // of the file, from 1
  std::string context;
  std::vector<std::string> choices;  // at least 2, none empty
  size_t answer = 0;
};

struct ChoiceTasks {
  std::vector<ChoiceTask> tasks;
  std::vector<std::string> problems;  // "FILE:LINE: what is wrong", one per bad line
};

// Blank lines are skipped. `file` is used in messages.
ChoiceTasks ParseChoiceTasks(std::string_view text, const std::string& file);

// A task in tokens.
struct ChoiceTokens {
  struct Choice {
    std::vector<TokenId> tokens;  // context and choice
    size_t first_scored = 0;      // at least 1
    size_t text_bytes = 0;
  };
  std::vector<Choice> choices;
  size_t length_max = 0;  // tokens of the longest
};

// kInvalid, naming file and line, where no token comes before the choice.
Result<ChoiceTokens> EncodeChoices(const ChoiceTask& task, const Tokenizer& tokenizer,
                                   const std::string& file);

struct ChoiceScores {
  double log_prob = 0;  // sum, in nats
  double log_prob_per_byte = 0;
  double log_prob_per_token = 0;
};

// The scores of every choice. The session must hold the longest one.
Result<std::vector<ChoiceScores>> ScoreChoices(Session& session, const ChoiceTokens& tokens);

// Share of tasks whose best choice (the first among equals) is the answer.
struct ChoiceReport {
  int64_t tasks = 0;
  Estimate accuracy;  // by log_prob
  Estimate accuracy_per_byte;
  Estimate accuracy_per_token;
  double chance = 0;  // of a blind guess

  void Add(const ChoiceTask& task, const std::vector<ChoiceScores>& scores);

 private:
  int64_t right_ = 0, right_per_byte_ = 0, right_per_token_ = 0;
  double chances_ = 0;
};

}  // namespace kvant::evaluate
