// The options of a beam search: how it searches, and the rules for its next token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvant/beam_options.h"
#include "tools/options/command_line.h"

namespace kvant::tools {

// The rules for the next token, which act on the texts of encoder-decoders that are not searched,
// too.
struct TokenRuleOptions {
  std::optional<int64_t> no_repeat_ngram;
  std::vector<std::string> bad_words;  // lists of numbers, separated by semicolons
  std::optional<int64_t> min_length;
  std::optional<int64_t> min_tokens;
  std::optional<int64_t> forced_bos;
  std::vector<std::string> forced_eos;  // numbers, see tools/options/number_list.h
  std::vector<std::string> suppress;
  std::vector<std::string> begin_suppress;
  bool renormalize = false;

  void Add(OptionList& list);
};

struct SearchOptions {
  std::optional<int64_t> count;
  std::optional<float> length_penalty;
  std::optional<std::string> early_stopping;
  int64_t num_return = 1;
  int64_t groups = 1;
  float diversity_penalty = 0.0f;
  std::optional<std::string> scoring;
  float patience = 1.0f;
  bool sample = false;
  TokenRuleOptions rules;
  BeamOptions model;        // what the model's file asks for
  bool model_asks = false;  // whether the model's file asks for a search

  int64_t beams() const { return count.value_or(model.beams); }

  void Add(OptionList& list);
  void AddSample(OptionList& list);
};

}  // namespace kvant::tools
