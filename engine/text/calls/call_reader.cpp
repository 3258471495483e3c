#include "engine/text/calls/call_reader.h"

#include <algorithm>
#include <utility>

#include "engine/text/calls/call_header.h"
#include "engine/text/calls/call_values.h"

namespace kvant {
namespace {

using Form = ToolFormat::Form;

// More than any call has before its arguments; what is read again and again stays short.
constexpr size_t kPendingMax = 1 << 16;

void AddMark(std::string_view mark, std::vector<std::string>& marks) {
  if (!mark.empty() && std::ranges::find(marks, mark) == marks.end()) marks.emplace_back(mark);
}

size_t LengthWithoutBlanks(std::string_view text) {
  const size_t last = text.find_last_not_of(kCallBlanks);
  return last == std::string_view::npos ? 0 : last + 1;
}

struct FoundMark {
  size_t at = std::string_view::npos;
  size_t length = 0;
  bool is_open = false;
};

// The first place where one of the marks stands, and the longest one there.
FoundMark FirstMark(std::string_view text, const std::vector<std::string>& opens,
                    const std::vector<std::string>& others) {
  std::string firsts;
  for (const auto* marks : {&opens, &others}) {
    for (const std::string& mark : *marks) firsts += mark.front();
  }
  FoundMark found;
  for (size_t at = 0; found.length == 0; ++at) {
    at = text.find_first_of(firsts, at);
    if (at == std::string_view::npos) break;
    for (const auto* marks : {&opens, &others}) {
      for (const std::string& mark : *marks) {
        if (mark.size() <= found.length || !text.substr(at).starts_with(mark)) continue;
        found = {at, mark.size(), marks == &opens};
      }
    }
  }
  return found;
}

size_t HeldForMarks(const std::vector<std::string>& marks, std::string_view text) {
  size_t held = 0;
  for (const std::string& mark : marks) held = std::max(held, HeldForMark(mark, text));
  return held;
}

// Whether one of the marks comes first, or may come first when there is more text.
bool BeginsWithOne(const std::vector<std::string>& marks, std::string_view text) {
  return std::ranges::any_of(marks, [&](const auto& mark) { return text.starts_with(mark); });
}
bool MayBeginWithOne(const std::vector<std::string>& marks, std::string_view text) {
  return std::ranges::any_of(marks, [&](const auto& mark) {
    return text.size() < mark.size() && std::string_view(mark).starts_with(text);
  });
}

}  // namespace

CallReader::CallReader(const ToolFormat& format, const ToolList& tools, std::string_view prompt,
                       AnswerEvents& events)
    : format_(format), tools_(tools), events_(events), is_bare_(IsBareFormat(format)) {
  AddMark(FirstOfMark(format.section_open), opens_);
  AddMark(FirstOfMark(format.call_open), opens_);
  for (const std::string& mark : format.skipped) AddMark(TrimmedMark(mark), skips_);
  for (const auto* mark : {&format.call_close, &format.section_close, &format.separator}) {
    AddMark(TrimmedMark(*mark), closes_);
  }
  const std::string_view before = prompt.substr(0, LengthWithoutBlanks(prompt));
  for (const std::string& open : opens_) {
    if (pending_.empty() && before.ends_with(open)) pending_ = open;
  }
}

void CallReader::Push(std::string_view text) {
  pending_.erase(0, std::exchange(head_, 0));
  pending_ += text;
  while (Step() == Next::kAgain) {
  }
}

void CallReader::Finish() {
  is_finished_ = true;
  Push("");
}

CallReader::Next CallReader::Step() {
  if (!events_.is_wanted()) return Next::kWait;
  switch (state_) {
    case State::kContent: return StepContent();
    case State::kHeader: return StepHeader();
    case State::kArguments: return StepArguments();
    case State::kBehind: return StepBehind();
    case State::kBetween: return StepBetween();
    case State::kRest: return StepRest();
  }
  return Next::kWait;
}

// ---- Content ------------------------------------------------------------------------------------

CallReader::Next CallReader::StepContent() {
  if (is_behind_skipped_) {
    // Blanks behind a mark that is left out belong to it.
    Drop(std::min(Pending().find_first_not_of(kCallBlanks), Pending().size()));
    if (Pending().empty()) return Next::kWait;
    is_behind_skipped_ = false;
  }
  const std::string_view text = Pending();
  if (is_bare_ && may_begin_bare_) {
    const size_t first = text.find_first_not_of(kCallBlanks);
    if (first == std::string_view::npos && !is_finished_) return Next::kWait;
    if (first != std::string_view::npos && (text[first] == '{' || text[first] == '[')) {
      state_ = State::kHeader;
      return Next::kAgain;
    }
  }
  const FoundMark mark = FirstMark(text, opens_, skips_);
  if (mark.length > 0) {
    const bool may_be_longer = mark.is_open && MayBeginWithOne(skips_, text.substr(mark.at));
    if (may_be_longer && !is_finished_) return Next::kWait;
    const size_t end = LengthWithoutBlanks(text.substr(0, mark.at));
    may_begin_bare_ = may_begin_bare_ && end == 0;
    events_.Content(text.substr(0, end));
    Drop(mark.is_open ? end : mark.at + mark.length);
    if (mark.is_open) state_ = State::kHeader;
    is_behind_skipped_ = !mark.is_open;
    return Next::kAgain;
  }
  size_t end = text.size();
  if (!is_finished_) {
    end -= std::max(HeldForMarks(opens_, text), HeldForMarks(skips_, text));
    end = LengthWithoutBlanks(text.substr(0, end));
  }
  may_begin_bare_ = may_begin_bare_ && LengthWithoutBlanks(text.substr(0, end)) == 0;
  events_.Content(text.substr(0, end));
  Drop(end);
  return Next::kWait;
}

// A text that only looked like a call is content up to the end of its mark.
CallReader::Next CallReader::NoCall() {
  const std::string_view text = Pending();
  const size_t first = std::min(text.find_first_not_of(kCallBlanks), text.size());
  size_t length = 0;
  for (const std::string& open : opens_) {
    if (text.substr(first).starts_with(open)) length = std::max(length, open.size());
  }
  size_t end = std::min(text.size(), first + std::max<size_t>(length, 1));
  while (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) ++end;
  events_.Content(text.substr(0, end));
  Drop(end);
  is_in_array_ = false;
  may_begin_bare_ = false;
  state_ = State::kContent;
  return Next::kAgain;
}

// ---- The beginning of a call --------------------------------------------------------------------

CallReader::Next CallReader::StepHeader() {
  const std::string_view text = Pending();
  CallCursor cursor(text);
  CallHeader header;
  TakeHeader(format_, tools_, is_in_array_ ? CallPlace::kInArray : CallPlace::kOutside, cursor,
             header);
  if (cursor.state() == CallCursor::State::kMore) {
    if (!is_finished_) return text.size() > kPendingMax ? NoCall() : Next::kWait;
    if (is_bare_ && header.name.empty()) return NoCall();
    events_.Cut(text);
    Drop(text.size());
    return Next::kWait;
  }
  if (!cursor.is_good()) return NoCall();
  Drop(cursor.at());
  name_ = header.name;
  depth_ = header.depth;
  is_in_array_ = is_in_array_ || header.opens_array;
  has_text_arguments_ = header.has_text_arguments;
  has_argument_ = false;
  is_in_value_ = false;
  scan_ = {};
  events_.Begin(header.name, header.id);
  state_ = State::kArguments;
  if (format_.form != Form::kJson || header.arguments.empty()) return Next::kAgain;
  JsonScan scan;
  const size_t length = scan.Take(header.arguments);
  const bool is_object = header.arguments.front() == '{';
  if (!is_object || length < header.arguments.size() || scan.state() != JsonScan::State::kDone) {
    events_.Malformed(header.arguments);
    return Malformed();
  }
  events_.Arguments(header.arguments);
  return EndArguments();
}

// ---- Arguments ----------------------------------------------------------------------------------

CallReader::Next CallReader::StepArguments() {
  switch (format_.form) {
    case Form::kTagged: return is_in_value_ ? StepValue() : StepTag();
    case Form::kPythonic:
    case Form::kBraces: return StepItem();
    default: return has_text_arguments_ ? StepTextArguments() : StepJson();
  }
}

CallReader::Next CallReader::EndArguments() {
  state_ = State::kBehind;
  return Next::kAgain;
}

CallReader::Next CallReader::Malformed() {
  events_.Break();
  is_in_array_ = false;
  state_ = State::kRest;
  return Next::kAgain;
}

// The rest may come, or the answer ends in the middle of a call.
CallReader::Next CallReader::WaitOrCut() {
  if (!is_finished_) return Next::kWait;
  events_.Break();
  events_.Cut(Pending());
  Drop(Pending().size());
  state_ = State::kContent;
  return Next::kWait;
}

CallReader::Next CallReader::StepJson() {
  const std::string_view text = Pending();
  const size_t length = scan_.Take(text);
  events_.Arguments(text.substr(0, length));
  Drop(length);
  if (scan_.state() == JsonScan::State::kDone) return EndArguments();
  return scan_.state() == JsonScan::State::kBad ? Malformed() : WaitOrCut();
}

CallReader::Next CallReader::StepTextArguments() {
  CallCursor cursor(Pending());
  std::string arguments;
  if (!cursor.JsonText(arguments)) {
    return cursor.state() == CallCursor::State::kMore ? WaitOrCut() : Malformed();
  }
  if (TrimmedMark(arguments).empty()) arguments = "{}";
  CallCursor inner(arguments);
  std::string_view value;
  inner.Blanks();
  const bool is_object = inner.Sees('{') && inner.Json(value);
  inner.Blanks();
  if (!is_object || !inner.rest().empty()) return Malformed();
  Drop(cursor.at());
  events_.Arguments(value);
  return EndArguments();
}

void CallReader::BeginArgument(std::string_view key) {
  events_.Arguments(std::string(has_argument_ ? ", \"" : "{\"") + EscapedForJson(key) + "\": ");
  has_argument_ = true;
}

CallReader::Next CallReader::EndItems() {
  events_.Arguments(has_argument_ ? "}" : "{}");
  return EndArguments();
}

// Between two values: the mark of the next one, or the end of the call.
CallReader::Next CallReader::StepTag() {
  CallCursor cursor(Pending());
  cursor.Blanks();
  if (cursor.Try(TrimmedMark(format_.argument_open))) {
    const std::string_view close = TrimmedMark(format_.key_close);
    std::string key;
    if (cursor.Until(close, key) && cursor.Mark(close)) {
      Drop(cursor.at());
      BeginArgument(TrimmedMark(key));
      types_ = tools_.TypesOf(name_, TrimmedMark(key));
      if (types_ == kTypeText) events_.Arguments("\"");
      is_in_value_ = true;
      is_first_of_value_ = true;
      searched_ = 0;
      return Next::kAgain;
    }
  }
  if (cursor.state() == CallCursor::State::kMore) return WaitOrCut();
  if (!cursor.is_good()) return Malformed();
  if (closes_.empty()) return EndItems();
  bool may_come = false;
  for (const std::string& close : closes_) {
    CallCursor end(cursor.rest());
    if (end.Try(close)) return EndItems();
    may_come = may_come || end.state() == CallCursor::State::kMore;
  }
  return may_come ? WaitOrCut() : Malformed();
}

// A value between tags. Texts are handed on as they come, all else when it is whole.
CallReader::Next CallReader::StepValue() {
  std::string_view text = Pending();
  if (std::exchange(is_first_of_value_, false) && format_.key_close.ends_with('\n')) {
    if (text.empty()) {
      is_first_of_value_ = true;
      return WaitOrCut();
    }
    if (text.front() == '\n') Drop(1);
    text = Pending();
  }
  const std::string_view close = TrimmedMark(format_.argument_close);
  const bool has_line_end = format_.argument_close.starts_with('\n');
  const size_t end = text.find(close, searched_ - std::min(searched_, close.size()));
  const bool is_whole = end != std::string_view::npos;
  size_t length = is_whole ? end : text.size() - HeldForMark(close, text);
  if (has_line_end && length > 0 && text[length - 1] == '\n') --length;
  if (types_ == kTypeText) {
    events_.Arguments(EscapedForJson(text.substr(0, length)));
    if (!is_whole) {
      Drop(length);
      return WaitOrCut();
    }
    events_.Arguments("\"");
  } else if (!is_whole) {
    searched_ = text.size();
    return WaitOrCut();
  } else {
    events_.Arguments(JsonOfTagged(text.substr(0, length), types_));
  }
  Drop(end + close.size());
  is_in_value_ = false;
  return Next::kAgain;
}

// An argument of a call in the notation of Python or in braces.
CallReader::Next CallReader::StepItem() {
  const bool is_python = format_.form == Form::kPythonic;
  const char close = is_python ? ')' : '}';
  CallCursor cursor(Pending());
  cursor.Blanks();
  if (has_argument_ && !cursor.Sees(close)) {
    cursor.Char(',');
    cursor.Blanks();
  }
  if (cursor.TryChar(close)) {
    Drop(cursor.at());
    return EndItems();
  }
  std::string key;
  std::string value;
  if (is_python) {
    cursor.Name(key);
    cursor.Blanks();
    if (cursor.Char('=')) TakePython(cursor, value);
  } else if (cursor.Until(":", key) && cursor.Char(':')) {
    TakeBraced(cursor, value);
  }
  if (cursor.state() == CallCursor::State::kMore) return WaitOrCut();
  if (!cursor.is_good()) return Malformed();
  Drop(cursor.at());
  BeginArgument(TrimmedMark(key));
  events_.Arguments(value);
  return Next::kAgain;
}

// ---- Behind a call ------------------------------------------------------------------------------

CallReader::Next CallReader::StepBehind() {
  std::string id;
  if (depth_ > 0) {
    const std::string_view text = Pending();
    CallCursor cursor(text);
    TakeMembersBehind(format_, depth_, cursor, id);
    const bool may_come = cursor.state() == CallCursor::State::kMore;
    if (may_come && !is_finished_ && text.size() <= kPendingMax) return Next::kWait;
    if (cursor.is_good()) Drop(cursor.at());
    if (may_come) Drop(text.size());
  }
  events_.Complete(id);
  state_ = State::kBetween;
  return Next::kAgain;
}

// Behind a call: marks that belong to it, another call, or content.
CallReader::Next CallReader::StepBetween() {
  const std::string_view text = Pending();
  CallCursor cursor(text);
  cursor.Blanks();
  const std::string_view rest = cursor.rest();
  if (rest.empty()) {
    if (is_finished_) Drop(text.size());
    return Next::kWait;
  }
  if (is_in_array_) {
    const bool goes_on = cursor.TryChar(',');
    is_in_array_ = goes_on;
    if (!goes_on && !cursor.TryChar(']')) return Next::kAgain;
    Drop(cursor.at());
    if (goes_on) state_ = State::kHeader;
    return Next::kAgain;
  }
  bool may_close = false;
  for (const std::string& close : closes_) {
    CallCursor end(rest);
    if (end.Try(close)) {
      Drop(cursor.at() + end.at());
      return Next::kAgain;
    }
    may_close = may_close || end.state() == CallCursor::State::kMore;
  }
  if (BeginsWithOne(opens_, rest)) {
    state_ = State::kHeader;
    return Next::kAgain;
  }
  if (is_bare_ && rest.front() == ';') {
    Drop(cursor.at() + 1);
    return Next::kAgain;
  }
  const bool may_come = may_close || MayBeginWithOne(opens_, rest) || MayBeginWithOne(skips_, rest);
  if (may_come && !is_finished_) return Next::kWait;
  if (may_come) {  // the answer ends within a mark
    if (!may_close) events_.Cut(rest);
    Drop(text.size());
    return Next::kWait;
  }
  Drop(cursor.at());
  may_begin_bare_ = is_bare_ && (rest.front() == '{' || rest.front() == '[');
  state_ = State::kContent;
  return Next::kAgain;
}

// Keeps what follows a byte that no call can have, up to the next mark.
CallReader::Next CallReader::StepRest() {
  const std::string_view text = Pending();
  const FoundMark mark = FirstMark(text, opens_, closes_);
  size_t end = mark.at;
  if (mark.length == 0) {
    end = text.size();
    if (!is_finished_) end -= std::max(HeldForMarks(opens_, text), HeldForMarks(closes_, text));
  }
  events_.Malformed(text.substr(0, end));
  Drop(end);
  if (mark.length == 0) return Next::kWait;
  state_ = State::kBetween;
  return Next::kAgain;
}

}  // namespace kvant
