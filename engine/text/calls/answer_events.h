// Hands on what is read in an answer, and keeps it.
//
// Thread-safety: one thread at a time.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/calls/call_cursor.h"
#include "kvant/tool_calls.h"

namespace kvant {

class AnswerEvents {
 public:
  explicit AnswerEvents(ToolEventFunction take) : take_(std::move(take)) {}

  void Reasoning(std::string_view text) {
    if (text.empty()) return;
    reasoning_ += text;
    Take({.kind = ToolEvent::Kind::kReasoning, .text = text});
  }
  void Content(std::string_view text) {
    if (text.empty()) return;
    content_ += text;
    Take({.kind = ToolEvent::Kind::kContent, .text = text});
  }
  void Begin(std::string name, std::string id) {
    calls_.push_back({.id = std::move(id), .name = std::move(name), .arguments = {}});
    const ToolCall& call = calls_.back();
    Take({ToolEvent::Kind::kCallBegin, call.name, number(), call.id});
  }
  void Arguments(std::string_view text) {
    if (text.empty()) return;
    calls_.back().arguments += text;
    Take({ToolEvent::Kind::kArguments, text, number()});
  }
  // Ends a complete call. `id`: where it stood behind the arguments.
  void Complete(std::string id = {}) {
    ToolCall& call = calls_.back();
    call.is_complete = true;
    if (call.id.empty()) call.id = std::move(id);
    Take({ToolEvent::Kind::kCallEnd, {}, number(), call.id, true});
  }
  // Ends a call that is not complete.
  void Break() { Take({ToolEvent::Kind::kCallEnd, {}, number(), calls_.back().id, false}); }
  // Blanks at the beginning are left out.
  void Malformed(std::string_view text) {
    std::string& malformed = calls_.back().malformed;
    malformed += malformed.empty() ? WithoutFirstBlanks(text) : text;
  }
  void Cut(std::string_view text) { cut_text_ += WithoutFirstBlanks(text); }

  bool is_wanted() const { return is_wanted_; }  // whether every call of the function returned true
  std::string& reasoning() { return reasoning_; }
  const std::string& content() const { return content_; }
  const std::vector<ToolCall>& calls() const { return calls_; }
  const std::string& cut_text() const { return cut_text_; }

 private:
  static std::string_view WithoutFirstBlanks(std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(kCallBlanks), text.size()));
  }
  int64_t number() const { return std::ssize(calls_) - 1; }
  void Take(const ToolEvent& event) { is_wanted_ = is_wanted_ && (!take_ || take_(event)); }

  ToolEventFunction take_;
  bool is_wanted_ = true;
  std::string reasoning_;
  std::string content_;
  std::vector<ToolCall> calls_;
  std::string cut_text_;
};

}  // namespace kvant
