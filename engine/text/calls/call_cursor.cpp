#include "engine/text/calls/call_cursor.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/text/calls/json_scan.h"

namespace kvant {
namespace {

constexpr size_t kCallNameMax = 256;  // several times what any API allows

bool IsBlank(char byte) { return kCallBlanks.find(byte) != std::string_view::npos; }

bool IsOfName(char byte) {
  const auto code = static_cast<uint8_t>(byte);
  const bool is_letter = (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
  return is_letter || (code >= '0' && code <= '9') || code >= 0x80 ||
         std::string_view("_-.:/").find(byte) != std::string_view::npos;
}

}  // namespace

std::string_view TrimmedMark(std::string_view mark) {
  const size_t first = mark.find_first_not_of(kCallBlanks);
  if (first == std::string_view::npos) return {};
  return mark.substr(first, mark.find_last_not_of(kCallBlanks) + 1 - first);
}

std::string_view FirstOfMark(std::string_view mark) {
  mark = TrimmedMark(mark);
  return mark.substr(0, mark.find_first_of(kCallBlanks));
}

size_t HeldForMark(std::string_view mark, std::string_view text) {
  if (mark.empty()) return 0;
  size_t length = std::min(mark.size() - 1, text.size());
  while (length > 0 && !mark.starts_with(text.substr(text.size() - length))) --length;
  return length;
}

void CallCursor::Blanks() {
  if (!is_good()) return;
  while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
}

bool CallCursor::Mark(std::string_view mark) {
  for (size_t i = 0; i < mark.size(); ++i) {
    if (IsBlank(mark[i])) {
      Blanks();
    } else if (!Char(mark[i])) {
      return false;
    }
  }
  return is_good();
}

bool CallCursor::Char(char byte) {
  if (!Sees(byte)) return is_good() ? Fail() : false;
  ++at_;
  return true;
}

bool CallCursor::Sees(char byte) {
  if (!is_good()) return false;
  if (at_ == text_.size()) return Short();
  return text_[at_] == byte;
}

bool CallCursor::Try(std::string_view mark) {
  if (!is_good() || TrimmedMark(mark).empty()) return false;
  const size_t before = at_;
  if (Mark(mark)) return true;
  if (state_ == State::kBad) {
    state_ = State::kGood;
    at_ = before;
  }
  return false;
}

bool CallCursor::TryChar(char byte) {
  if (!Sees(byte)) return false;
  ++at_;
  return true;
}

bool CallCursor::Name(std::string& name) {
  if (!is_good()) return false;
  const auto rest = this->rest();
  const size_t length =
      static_cast<size_t>(std::find_if_not(rest.begin(), rest.end(), IsOfName) - rest.begin());
  if (length > kCallNameMax) return Fail();
  if (length == rest.size()) return Short();
  if (length == 0) return Fail();
  name = rest.substr(0, length);
  at_ += length;
  return true;
}

bool CallCursor::Json(std::string_view& value) {
  if (!is_good()) return false;
  JsonScan scan;
  const size_t length = scan.Take(rest());
  if (scan.state() == JsonScan::State::kBad) return Fail();
  if (scan.state() == JsonScan::State::kMore) return Short();
  value = rest().substr(0, length);
  at_ += length;
  return true;
}

bool CallCursor::Bytes(size_t count, std::string_view& bytes) {
  if (!is_good()) return false;
  if (rest().size() < count) return Short();
  bytes = rest().substr(0, count);
  at_ += count;
  return true;
}

bool CallCursor::JsonText(std::string& text) {
  std::string_view value;
  if (!Char('"')) return false;
  --at_;
  if (!Json(value)) return false;
  const auto json = nlohmann::json::parse(value, nullptr, false);
  if (!json.is_string()) return Fail();
  text = json.get<std::string>();
  return true;
}

bool CallCursor::Until(std::string_view mark, std::string& text) {
  if (!is_good()) return false;
  const size_t end = rest().find(mark);
  if (end == std::string_view::npos) return rest().size() > kCallNameMax ? Fail() : Short();
  if (end > kCallNameMax) return Fail();
  text = rest().substr(0, end);
  at_ += end;
  return true;
}

}  // namespace kvant
