// The text of a sequence as its tokens come: pieces of complete UTF-8, less what might still become
// a stop text, until an end token or a stop text.
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

  TokenText(const Tokenizer& tokenizer, const std::vector<std::string>& stop_texts, bool special,
            bool ignore_end)
      : tokenizer_(&tokenizer),
        special_(special),
        ignore_end_(ignore_end),
        stop_filter_(stop_texts) {}

  // Takes a token and adds what has become final to `piece`.
  State Push(TokenId id, std::string& piece) {
    // A model may have more rows than its vocabulary has tokens (padding): those have no text.
    const bool known = id < tokenizer_->vocab_size();
    if (known && tokenizer_->is_end_of_generation(id) && !ignore_end_) return State::kEndToken;
    const std::string bytes = known ? tokenizer_->TokenBytes(id, {.special = special_}) : "";
    piece += utf8_.Push(stop_filter_.Push(bytes));
    return stop_filter_.stopped() ? State::kStopText : State::kOpen;
  }

  // What was held back, which can no longer become a stop text or a character.
  std::string Finish() { return utf8_.Push(stop_filter_.Finish()) + utf8_.Finish(); }

 private:
  const Tokenizer* tokenizer_;
  bool special_;
  bool ignore_end_;
  StopTextFilter stop_filter_;
  Utf8Stream utf8_;
};

}  // namespace kvant
