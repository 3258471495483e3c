#include "engine/text/calls/channel_reader.h"

#include <algorithm>

#include "engine/text/calls/call_cursor.h"

namespace kvant {
namespace {

constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kBodyEnds[] = {"<|end|>", "<|call|>", "<|return|>", kStart, kChannel};

// The word behind `key` in a header; "" if there is none.
std::string_view WordBehind(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + key.size());
  return header.substr(0, header.find_first_of(" \t\r\n<"));
}

}  // namespace

ChannelReader::ChannelReader(std::string_view prompt, AnswerEvents& events) : events_(events) {
  // "<|start|>assistant" is where messages begin; what stands behind it is a header.
  const size_t start = prompt.rfind(kStart);
  if (start == std::string_view::npos) return;
  const std::string_view header = prompt.substr(start + kStart.size());
  const size_t message = header.rfind(kMessage);
  if (message == std::string_view::npos) {
    if (header.find(kChannel) == std::string_view::npos) return;
    pending_ = header.substr(header.find(kChannel));
    state_ = State::kHeader;
  } else if (TrimmedMark(header.substr(message + kMessage.size())).empty()) {
    Begin(header.substr(0, message));
  }
}

void ChannelReader::Push(std::string_view text) {
  pending_ += text;
  while (events_.is_wanted() && Step()) {
  }
}

void ChannelReader::Finish() {
  is_finished_ = true;
  Push("");
  if (state_ == State::kArguments) events_.Break();
}

bool ChannelReader::Step() {
  if (state_ == State::kHeader) return StepHeader();
  if (state_ != State::kOutside) return StepBody();
  // Between messages: the beginning of one, or content without a header.
  for (const std::string_view mark : {kStart, kChannel}) {
    if (!pending_.starts_with(mark)) continue;
    state_ = State::kHeader;
    return true;
  }
  const bool may_come = kStart.starts_with(pending_) || kChannel.starts_with(pending_) ||
                        TrimmedMark(pending_).empty() ||
                        std::string_view(" to=").starts_with(pending_) ||
                        pending_.starts_with(" to=");
  if (may_come) {
    if (pending_.starts_with(" to=") && pending_.find(kChannel) != std::string::npos) {
      state_ = State::kHeader;
      return true;
    }
    if (is_finished_ && !TrimmedMark(pending_).empty()) events_.Cut(pending_);
    if (is_finished_) pending_.clear();
    return false;
  }
  state_ = State::kContent;
  return true;
}

bool ChannelReader::StepHeader() {
  const size_t end = pending_.find(kMessage);
  if (end == std::string::npos) {
    if (is_finished_) {
      events_.Cut(pending_);
      pending_.clear();
    }
    return false;
  }
  const std::string header = pending_.substr(0, end);
  pending_.erase(0, end + kMessage.size());
  Begin(header);
  return true;
}

void ChannelReader::Begin(std::string_view header) {
  constexpr std::string_view kFunctions = "functions.";
  std::string_view name = WordBehind(header, " to=");
  if (name.starts_with(kFunctions)) name.remove_prefix(kFunctions.size());
  has_begun_part_ = true;
  if (!name.empty()) {
    events_.Begin(std::string(name), "");
    scan_ = {};
    has_begun_arguments_ = false;
    state_ = State::kArguments;
  } else {
    const bool thinks = WordBehind(header, kChannel) == "analysis";
    state_ = thinks ? State::kReasoning : State::kContent;
  }
}

// Messages of one part are paragraphs of it.
void ChannelReader::Hand(std::string_view text) {
  if (text.empty()) return;
  const bool thinks = state_ == State::kReasoning;
  const bool is_next =
      has_begun_part_ && !(thinks ? events_.reasoning() : events_.content()).empty();
  has_begun_part_ = false;
  const std::string all = std::string(is_next ? "\n\n" : "") + std::string(text);
  if (thinks) {
    events_.Reasoning(all);
  } else {
    events_.Content(all);
  }
}

// Text behind the arguments of a call is kept where the call is wrong, or where it is more
// than blanks.
void ChannelReader::EndCall() {
  const bool is_done = scan_.state() == JsonScan::State::kDone;
  if (!is_done || !TrimmedMark(behind_).empty()) events_.Malformed(behind_);
  behind_.clear();
}

bool ChannelReader::StepBody() {
  size_t end = std::string::npos;
  size_t mark_length = 0;
  for (const std::string_view mark : kBodyEnds) {
    const size_t at = pending_.find(mark);
    if (at >= end) continue;
    end = at;
    mark_length = mark == kStart || mark == kChannel ? 0 : mark.size();
  }
  const bool is_whole = end != std::string::npos;
  if (!is_whole) {
    size_t held = 0;
    for (const std::string_view mark : kBodyEnds) {
      if (!is_finished_) held = std::max(held, HeldForMark(mark, pending_));
    }
    end = pending_.size() - held;
  }
  const std::string_view text = std::string_view(pending_).substr(0, end);
  if (state_ == State::kArguments) {
    size_t taken = 0;
    if (!has_begun_arguments_) taken = std::min(text.find_first_not_of(kCallBlanks), text.size());
    const bool is_object = has_begun_arguments_ || taken == text.size() || text[taken] == '{';
    has_begun_arguments_ = has_begun_arguments_ || (is_object && taken < text.size());
    if (is_object) {
      const size_t length = scan_.Take(text.substr(taken));
      events_.Arguments(text.substr(taken, length));
      taken += length;
    }
    if (scan_.state() != JsonScan::State::kMore || is_whole || !is_object) {
      if (scan_.state() == JsonScan::State::kDone) {
        events_.Complete();
      } else {
        events_.Break();
      }
      state_ = State::kBehindCall;
      pending_.erase(0, taken);
      return true;
    }
  } else if (state_ == State::kBehindCall) {
    behind_ += text;
    if (is_whole || is_finished_) EndCall();
  } else {
    Hand(text);
  }
  pending_.erase(0, end + (is_whole ? mark_length : 0));
  if (is_whole) state_ = State::kOutside;
  return is_whole;
}

}  // namespace kvant
