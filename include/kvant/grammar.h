// Output that follows a grammar: only tokens are chosen with which the text can still become what
// the grammar describes, and a text ends where it has become that.
//
// A grammar fails closed. What is not understood is an error before the first token. A text that
// its limit cuts short says so by its finish reason, and is then a beginning of what was asked for.
//
// Thread-safety: const; any number of texts may use a grammar at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvant/logit_stage.h"
#include "kvant/result.h"
#include "kvant/token_id.h"

namespace kvant {

class Tokenizer;

namespace grammar {
class BoundText;
class Matcher;
}  // namespace grammar

// The beginnings of a lazy grammar. Up to there a text is free, and it may end there.
struct GrammarTriggers {
  // Texts with which the grammar's own text begins. They are found inside tokens, too.
  std::vector<std::string> words = {};
  // Tokens. The grammar begins with such a token if it can, and else behind it.
  std::vector<TokenId> tokens = {};
  // Regular expressions. The grammar's text begins where the first text begins that one of these
  // matches. A text with which the grammar cannot begin is not written.
  std::vector<std::string> patterns = {};
  // Regular expressions that the whole text so far matches. The grammar's text begins with their
  // first group, or with the text where they have none.
  std::vector<std::string> full_patterns = {};
  bool empty() const {
    return words.empty() && tokens.empty() && patterns.empty() && full_patterns.empty();
  }
};

// A description of texts. docs/constrained.md describes the notations.
struct GrammarText {
  enum class Kind : uint8_t {
    kGbnf,        // llama.cpp's notation; `text` has a rule `root`
    kRegex,       // a regular expression that the whole text matches
    kChoices,     // one of `choices`
    kJson,        // any JSON object
    kJsonSchema,  // JSON that satisfies the schema `text`
  };
  Kind kind = Kind::kGbnf;
  std::string text = {};
  std::vector<std::string> choices = {};
  // kJson, kJsonSchema: no white space between the parts.
  bool json_compact = false;
  // kJsonSchema: keywords that JSON Schema does not know are annotations, as it says; else errors.
  bool json_allows_unknown = false;
  GrammarTriggers triggers = {};  // of a lazy grammar
};

class Grammar {
 public:
  // kInvalid with line and column, or for a schema with its JSON pointer, for a text that is not of
  // its notation, names what is not there or is too large, and for choices that are empty or over
  // 100,000. kNotSupported for what a schema says and kvant does not enforce.
  static Result<std::shared_ptr<const Grammar>> Create(const GrammarText& text,
                                                       const Tokenizer& tokenizer);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  const GrammarText& text() const;

  // A stage for one text of a model with the tokenizer's vocabulary: tokens of the prompt do not
  // count. It keeps the grammar alive. kInvalid for fewer logits than the vocabulary has.
  Result<std::unique_ptr<LogitStage>> NewStage(int32_t vocab_size,
                                               const FreeThoughts& thoughts = {}) const;

 private:
  struct Parts;
  explicit Grammar(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace kvant
