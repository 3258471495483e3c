#include "kvant/reasoning_text.h"

#include <algorithm>
#include <utility>

namespace kvant {
namespace {

constexpr std::string_view kReasoningBlanks = " \t\r\n";

size_t CountBlanks(std::string_view text) {
  return std::min(text.find_first_not_of(kReasoningBlanks), text.size());
}

// How many bytes at the end of `text` may be the beginning of `mark`.
size_t BeginningOf(std::string_view mark, std::string_view text) {
  size_t length = std::min(mark.size() - 1, text.size());
  while (length > 0 && !mark.starts_with(text.substr(text.size() - length))) --length;
  return length;
}

std::string_view WithoutBlanksAtEnd(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kReasoningBlanks) + 1);
}

}  // namespace

const std::vector<ReasoningText::Marks>& ReasoningText::AllMarks() {
  static const std::vector<Marks> marks = {
      {"<think>", "</think>"},
      {"[THINK]", "[/THINK]"},
      {"<seed:think>", "</seed:think>"},
      {"<|channel>thought\n", "<channel|>"},
      {"<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"},
      // An answer without reasoning in the last of these forms.
      {"<|channel|>final<|message|>", ""},
  };
  return marks;
}

bool MarksAreControlTokens(const Tokenizer& tokenizer) {
  for (const ReasoningText::Marks& marks : ReasoningText::AllMarks()) {
    const auto ids = tokenizer.Encode(marks.open, {.add_special = false, .parse_special = true});
    if (ids.ok() && !ids->empty() && tokenizer.is_control(ids->front())) return true;
  }
  return false;
}

std::vector<ReasoningText::Marks> ReasoningText::KnownMarks() const {
  std::vector<Marks> marks = AllMarks();
  if (!own_.open.empty()) marks.insert(marks.begin(), own_);
  return marks;
}

ReasoningText::ReasoningText(std::string_view prompt, PartFunction take, ReasoningMarks own)
    : take_(std::move(take)), own_(std::move(own)) {
  const std::string_view text = WithoutBlanksAtEnd(prompt);
  for (const Marks& marks : KnownMarks()) {
    if (marks.close.empty() || !text.ends_with(WithoutBlanksAtEnd(marks.open))) continue;
    marks_ = marks;
    state_ = State::kReasoning;
    return;
  }
}

bool ReasoningText::Push(std::string_view text) {
  pending_ += text;
  return Go();
}

bool ReasoningText::Finish() {
  finished_ = true;
  const bool good = Go();
  while (!reasoning_.empty() &&
         kReasoningBlanks.find(reasoning_.back()) != std::string_view::npos) {
    reasoning_.pop_back();
  }
  return good;
}

bool ReasoningText::Emit(AnswerPart part, std::string_view text) {
  if (text.empty()) return true;
  (part == AnswerPart::kReasoning ? reasoning_ : content_) += text;
  return take_(part, text);
}

// Decides how the answer begins. Text that may still become a mark is held back.
bool ReasoningText::Start(std::string_view text, size_t blanks) {
  const std::string_view first = text.substr(blanks);
  bool undecided = first.empty();
  for (const Marks& marks : KnownMarks()) {
    if (first.starts_with(marks.open)) {
      marks_ = marks;
      state_ = marks.close.empty() ? State::kGap : State::kReasoning;
      pending_.erase(0, blanks + marks.open.size());
      return Go();
    }
    undecided |= marks.open.starts_with(first);
  }
  if (undecided && !finished_) return true;
  state_ = State::kContent;
  return Go();
}

bool ReasoningText::Go() {
  if (state_ == State::kStart) return Start(pending_, CountBlanks(pending_));
  if (state_ == State::kReasoning && marks_.has_value()) {
    if (reasoning_.empty()) pending_.erase(0, CountBlanks(pending_));
    const std::string_view close = marks_->close;
    const size_t end = pending_.find(close);
    if (end == std::string::npos) {
      const size_t held = finished_ ? 0 : BeginningOf(close, pending_);
      const std::string shown = pending_.substr(0, pending_.size() - held);
      pending_.erase(0, shown.size());
      return Emit(AnswerPart::kReasoning, shown);
    }
    const std::string shown = pending_.substr(0, end);
    pending_.erase(0, end + close.size());
    state_ = State::kGap;
    if (!Emit(AnswerPart::kReasoning, shown)) return false;
  }
  if (state_ == State::kGap) {
    pending_.erase(0, CountBlanks(pending_));
    if (pending_.empty()) return true;
    state_ = State::kContent;
  }
  return Emit(AnswerPart::kContent, std::exchange(pending_, ""));
}

FreeThoughts ThoughtsBehind(std::string_view prompt, const ChatTemplate& chat_template) {
  const std::string_view text = WithoutBlanksAtEnd(prompt);
  FreeThoughts thoughts;
  for (const ReasoningText::Marks& marks : ReasoningText::AllMarks()) {
    const bool is_thought = !marks.close.empty();
    FreeThoughts::Mark mark = {std::string(marks.open), std::string(marks.close)};
    if (is_thought && text.ends_with(WithoutBlanksAtEnd(marks.open))) {
      return {.marks = {std::move(mark)}, .opened = 0};
    }
    if (text.ends_with(WithoutBlanksAtEnd(is_thought ? marks.close : marks.open))) return {};
    const bool known = chat_template.Mentions(WithoutBlanksAtEnd(marks.open)) ||
                       (is_thought && chat_template.Mentions(marks.close));
    if (!known) continue;
    // Where answers without a thought have a mark as well, all have one.
    thoughts.must_open = thoughts.must_open || !is_thought;
    thoughts.marks.push_back(std::move(mark));
  }
  return thoughts;
}

}  // namespace kvant
