// Tells what a model thinks from what it answers, as the text comes.
//
// Models mark their reasoning in one of a few ways, a row each in the list of the .cpp. It can only
// stand at the beginning of an answer; a mark further on is text like other text. Texts are UTF-8,
// and pieces may be cut anywhere.
//
// Errors: none. Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/chat.h"
#include "kvant/logit_stage.h"
#include "kvant/tokenizer.h"

namespace kvant {

enum class AnswerPart : uint8_t { kReasoning, kContent };

// Receives the text of a part, without marks; false ends the answer.
using PartFunction = std::function<bool(AnswerPart part, std::string_view text)>;

// The texts around reasoning.
struct ReasoningMarks {
  std::string open;
  std::string close;
};

class ReasoningText {
 public:
  // `prompt` is the text that the answer follows: templates may write the first mark themselves.
  // `own`: marks beside those of the list; none, where `open` is empty.
  ReasoningText(std::string_view prompt, PartFunction take, ReasoningMarks own = {});

  // Takes more text, and hands on what can no longer become a mark; false where a call of the
  // function returned false.
  bool Push(std::string_view text);
  // Hands on the text that was held back and has not become a mark.
  bool Finish();

  // All text that was handed on, blanks around the reasoning excluded.
  const std::string& reasoning() const { return reasoning_; }
  const std::string& content() const { return content_; }

 private:
  using Marks = ReasoningMarks;
  enum class State : uint8_t { kStart, kReasoning, kGap, kContent };

  static const std::vector<Marks>& AllMarks();
  std::vector<Marks> KnownMarks() const;
  friend bool MarksAreControlTokens(const Tokenizer& tokenizer);
  friend FreeThoughts ThoughtsBehind(std::string_view prompt, const ChatTemplate& chat_template);
  bool Go();  // as far as the pending text allows
  bool Start(std::string_view text, size_t blanks);
  bool Emit(AnswerPart part, std::string_view text);

  PartFunction take_;
  State state_ = State::kStart;
  Marks own_;
  std::optional<Marks> marks_;
  bool finished_ = false;
  std::string pending_;
  std::string reasoning_;
  std::string content_;
};

// Whether one of the marks is a control token of the vocabulary, whose text is shown only on
// demand.
bool MarksAreControlTokens(const Tokenizer& tokenizer);

// The thoughts that may come in answers to this prompt, before what a grammar describes: that which
// the prompt has begun, or those whose marks the template knows. None where the prompt ends with a
// thought that is over, as templates write it for answers without.
FreeThoughts ThoughtsBehind(std::string_view prompt, const ChatTemplate& chat_template);

}  // namespace kvant
