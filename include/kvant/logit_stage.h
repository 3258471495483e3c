// One stage of the chain that a row of logits passes before a token is chosen.
//
// Samplers (sampler.h) and beam searches (beam_search.h) send rows through the same chain, always
// in this order:
//
//     1. the caller's function, LogitOptions::on_logits
//     2. processors (beam_options.h) in Hugging Face's order; they leave log-probabilities
//     3. logit biases and forbidden tokens
//     4. a grammar (grammar.h)
//     5. the caller's stages, LogitOptions::stages
//     6. penalties and samplers, or the filters of a search; then a token is drawn or taken
//
// engine/generate/logit_stages/logit_stage_list.inl lists 1 to 5.
//
// Thread-safety: one thread at a time per stage.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvant/result.h"
#include "kvant/token_id.h"

namespace kvant {

class Grammar;
class Tokenizer;

enum class TokenFrom : uint8_t {
  kPrompt,
  kText,  // chosen, or part of a prompt that counts as text (GenerateOptions::processors_prompt)
};

// The text that the next token follows. Where the model reads a source of its own, the prompt is
// that of its decoder.
struct LogitText {
  std::span<const TokenId> tokens = {};  // all of it; may be left out unless a stage reads_tokens()
  int64_t prompt = 1;                    // how many tokens are the prompt's
  int64_t generated = 0;                 // and how many are not
  int64_t generated_max = INT64_MAX;     // of which there may be so many
  // The tokens that beams of earlier groups have just chosen for this place.
  std::span<const TokenId> shared = {};
};

// A wrong guess costs a row of a pass. One row in a pass of few costs next to nothing.
enum class Guesses : uint8_t {
  kAll,
  kSure,  // those whose place hardly another token can take
};

class LogitStage {
 public:
  virtual ~LogitStage() = default;

  // Changes the row, [vocab], of the token after `text`. No value is NaN or +infinity when Apply is
  // called; a token at -infinity cannot be chosen. An error ends the text.
  virtual Status Apply(const LogitText& text, std::span<float> row) = 0;

  // Whether Apply looks at LogitText::tokens.
  virtual bool reads_tokens() const { return false; }
  // Whether the text ends (FinishReason::kNoToken) where Apply leaves no token of those that it was
  // given. Otherwise that is an error.
  virtual bool ends_text() const { return false; }

  // Whether Accept changes the stage. Copies of a stage that keeps nothing are not made for beams.
  virtual bool keeps_state() const { return true; }
  // Tells the stage that a token has passed: each token of the prompt and of the text once, in
  // order. Guesses of a draft pass when they are known to be right.
  virtual void Accept(TokenId token, TokenFrom from) { (void)token, (void)from; }
  // Adds tokens that probably follow, at most `most`, since Apply leaves little choice. They are
  // computed with the token before them and taken where they are chosen.
  virtual void Guess(size_t most, Guesses which, std::vector<TokenId>& tokens) const {
    (void)most, (void)which, (void)tokens;
  }
  // Whether the text is complete, and nothing but an end token may follow.
  virtual bool IsOver() const { return false; }
  // A stage with the same state, for a copy of a sampler and for a beam that branches off.
  virtual std::unique_ptr<LogitStage> Clone() const = 0;
};

// Clone by the copy constructor of the class that derives from it.
template <class Stage>
class CopiedLogitStage : public LogitStage {
 public:
  std::unique_ptr<LogitStage> Clone() const final {
    return std::make_unique<Stage>(static_cast<const Stage&>(*this));
  }
};

// A stage is made for this. The tokenizer lives until the text has ended; it is null in a search
// that nobody gave one.
struct LogitStageSetup {
  int32_t vocab_size = 0;
  const Tokenizer* tokenizer = nullptr;
};

// Makes a stage for one text. An error ends the text before it begins.
using LogitStageMaker = std::function<Result<std::unique_ptr<LogitStage>>(const LogitStageSetup&)>;

// Thoughts that come before the text that a grammar describes, which does not concern them.
struct FreeThoughts {
  struct Mark {
    std::string open;
    std::string close;  // "": what follows `open` is no thought
  };
  std::vector<Mark> marks = {};  // a text may begin with the thought of one of these
  bool must_open = false;        // it has to
  int32_t opened = -1;           // the number of the mark that the prompt ends with; -1: none
};

// The caller's part of the chain. Options are copied for each text, so stages are made by
// functions.
struct LogitOptions {
  // Changes the logits of the token after `text`, all tokens so far. Where it leaves no token the
  // text ends with FinishReason::kNoToken; an error ends it, too. May be empty.
  std::function<Status(std::span<const TokenId> text, std::span<float> logits)> on_logits = {};
  // The text follows this grammar; null: none.
  std::shared_ptr<const Grammar> grammar = {};
  FreeThoughts thoughts = {};  // before it
  // Their order is that of their stages.
  std::vector<LogitStageMaker> stages = {};
};

}  // namespace kvant
