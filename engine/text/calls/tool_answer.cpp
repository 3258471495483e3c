// The reader of answers: thoughts, then content and calls, or channels.
#include <optional>
#include <utility>

#include "engine/text/calls/answer_events.h"
#include "engine/text/calls/call_reader.h"
#include "engine/text/calls/channel_reader.h"
#include "engine/text/calls/tool_list.h"
#include "kvant/reasoning_text.h"
#include "kvant/tool_calls.h"

namespace kvant {

// Thoughts come first in an answer, and what follows them goes to the reader of calls. The channels
// of gpt-oss have thoughts anywhere, so that their reader takes the whole.
class ToolAnswer::Parts {
 public:
  Parts(const ToolFormat& format, std::string_view tools, std::string_view prompt,
        ToolEventFunction take)
      : format_(format), events(std::move(take)) {
    if (auto parsed = ToolList::Parse(tools); parsed.ok()) tools_ = std::move(*parsed);
    if (format_.form == ToolFormat::Form::kChannels) {
      channels_.emplace(prompt, events);
      return;
    }
    calls_.emplace(format_, tools_, prompt, events);
    thoughts_.emplace(
        prompt, [this](AnswerPart part, std::string_view text) { return Hand(part, text); },
        ReasoningMarks{format_.reasoning_open, format_.reasoning_close});
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  bool Push(std::string_view text) {
    if (channels_.has_value()) {
      channels_->Push(text);
    } else {
      thoughts_->Push(text);
    }
    return events.is_wanted();
  }

  bool Finish() {
    if (channels_.has_value()) {
      channels_->Finish();
    } else {
      thoughts_->Finish();
      calls_->Finish();
      events.reasoning() = thoughts_->reasoning();
    }
    return events.is_wanted();
  }

 private:
  bool Hand(AnswerPart part, std::string_view text) {
    if (part == AnswerPart::kReasoning) {
      events.Reasoning(text);
    } else {
      calls_->Push(text);
    }
    return events.is_wanted();
  }

  ToolFormat format_;
  ToolList tools_;

 public:
  AnswerEvents events;

 private:
  std::optional<ChannelReader> channels_;
  std::optional<CallReader> calls_;
  std::optional<ReasoningText> thoughts_;
};

ToolAnswer::ToolAnswer(const ToolFormat& format, std::string_view tools, std::string_view prompt,
                       ToolEventFunction take)
    : parts_(std::make_unique<Parts>(format, tools, prompt, std::move(take))) {}
ToolAnswer::~ToolAnswer() = default;
ToolAnswer::ToolAnswer(ToolAnswer&&) noexcept = default;

bool ToolAnswer::Push(std::string_view text) { return parts_->Push(text); }
bool ToolAnswer::Finish() { return parts_->Finish(); }
const std::string& ToolAnswer::reasoning() const { return parts_->events.reasoning(); }
const std::string& ToolAnswer::content() const { return parts_->events.content(); }
const std::vector<ToolCall>& ToolAnswer::calls() const { return parts_->events.calls(); }
const std::string& ToolAnswer::cut_text() const { return parts_->events.cut_text(); }

}  // namespace kvant
