// Turns tokens into text as they come, until an end token or a stop text. The pieces are complete
// UTF-8; text that may still become a stop text is held back.
//
// Thread-safety: one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvant/stop_text.h"
#include "kvant/tokenizer.h"

namespace kvant {

class TokenText {
 public:
  enum class State : uint8_t {
    kOpen,
    kEndToken,  // the token just taken ends the text and is not part of it
    kStopText,
  };

  struct Options {
    bool special = false;     // the text of control tokens is shown
    bool ignore_end = false;  // end tokens are tokens like others
  };
  TokenText(const Tokenizer& tokenizer, const std::vector<std::string>& stop_texts,
            const Options& options)
      : tokenizer_(&tokenizer), options_(options), stop_filter_(stop_texts) {}

  // Takes a token and adds the text that has become final to `piece`.
  State Push(TokenId id, std::string& piece) {
    // A model may have more rows than its vocabulary has tokens (padding): such ids have no text.
    const bool known = id < tokenizer_->vocab_size();
    if (known && tokenizer_->is_end_of_generation(id) && !options_.ignore_end)
      return State::kEndToken;
    const std::string bytes =
        known ? tokenizer_->TokenBytes(id, {.special = options_.special}) : "";
    piece += Trimmed(utf8_.Push(stop_filter_.Push(bytes)));
    return stop_filter_.stopped() ? State::kStopText : State::kOpen;
  }

  // Returns the text that was held back, which can no longer become a stop text or a character.
  std::string Finish() { return Trimmed(utf8_.Push(stop_filter_.Finish()) + utf8_.Finish()); }

 private:
  std::string Trimmed(std::string text) {
    return tokenizer_->trims_texts() ? trim_.Push(text) : text;
  }

  const Tokenizer* tokenizer_;
  Options options_;
  StopTextFilter stop_filter_;
  Utf8Stream utf8_;
  TrimStream trim_;
};

}  // namespace kvant
