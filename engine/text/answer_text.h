// The text of an answer under way: thoughts, content and calls of tools told apart, and handed on.
//
// Thread-safety: one thread at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/conversation.h"
#include "kvant/reasoning_text.h"
#include "kvant/tool_calls.h"

namespace kvant {

// Whether a mark of the format is a control token, whose text is shown only on demand.
bool HasControlMarks(const ToolFormat& format, const Tokenizer& tokenizer);

// The thoughts that may come before calls in answers to this prompt.
FreeThoughts ThoughtsBeforeCalls(const ToolFormat& format, std::string_view prompt,
                                 const ChatTemplate& chat_template);

class AnswerText {
 public:
  // `format`: null where the answer can have no calls. `sink` must outlive the text.
  AnswerText(const ToolFormat* format, std::string_view tools, std::string_view prompt,
             const AnswerSink& sink)
      : sink_(sink) {
    const auto take = [this](AnswerPart part, std::string_view text) { return Take(part, text); };
    if (format == nullptr) {
      thoughts_.emplace(prompt, take);
      return;
    }
    answer_.emplace(*format, tools, prompt, [this](const ToolEvent& event) {
      switch (event.kind) {
        case ToolEvent::Kind::kReasoning: return Take(AnswerPart::kReasoning, event.text);
        case ToolEvent::Kind::kContent: return Take(AnswerPart::kContent, event.text);
        default: return !sink_.call || sink_.call(event);
      }
    });
  }
  AnswerText(const AnswerText&) = delete;
  AnswerText& operator=(const AnswerText&) = delete;

  bool Push(std::string_view text) {
    return answer_.has_value() ? answer_->Push(text) : thoughts_->Push(text);
  }
  void Finish() {
    if (answer_.has_value()) answer_->Finish();
    if (thoughts_.has_value()) thoughts_->Finish();
  }

  const std::string& reasoning() const {
    return answer_.has_value() ? answer_->reasoning() : thoughts_->reasoning();
  }
  const std::string& content() const {
    return answer_.has_value() ? answer_->content() : thoughts_->content();
  }
  std::vector<ToolCall> calls() const {
    return answer_.has_value() ? answer_->calls() : std::vector<ToolCall>();
  }

 private:
  bool Take(AnswerPart part, std::string_view text) {
    return !sink_.take || sink_.take(part, text);
  }

  const AnswerSink& sink_;
  std::optional<ReasoningText> thoughts_;
  std::optional<ToolAnswer> answer_;
};

}  // namespace kvant
