#include "engine/text/calls/json_scan.h"

namespace kvant {
namespace {

constexpr size_t kScanDepthMax = 200;  // shallow enough for a parser that recurses

bool IsDigit(char byte) { return byte >= '0' && byte <= '9'; }

int HexValue(char byte) {
  if (IsDigit(byte)) return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  if (byte >= 'A' && byte <= 'F') return byte - 'A' + 10;
  return -1;
}

}  // namespace

bool JsonScan::Bad() {
  state_ = State::kBad;
  return false;
}

void JsonScan::EndValue() {
  expect_ = Expect::kCommaOrEnd;
  if (open_.empty()) state_ = State::kDone;
}

size_t JsonScan::Take(std::string_view text) {
  size_t taken = 0;
  while (taken < text.size() && state_ == State::kMore) taken += Step(text[taken]) ? 1 : 0;
  return taken;
}

bool JsonScan::BeginValue(char byte) {
  switch (byte) {
    case '{':
    case '[':
      if (open_.size() == kScanDepthMax) return Bad();
      open_.push_back(byte);
      expect_ = byte == '{' ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
      return true;
    case '"':
      expect_ = Expect::kString;
      is_key_ = false;
      return true;
    case 't': word_ = "rue"; break;
    case 'f': word_ = "alse"; break;
    case 'n': word_ = "ull"; break;
    default:
      if (byte != '-' && !IsDigit(byte)) return Bad();
      expect_ = Expect::kNumber;
      digits_ = byte == '-' ? Digits::kSign : byte == '0' ? Digits::kZero : Digits::kWhole;
      return true;
  }
  expect_ = Expect::kWord;
  return true;
}

bool JsonScan::StepUnit(char byte) {
  const int value = HexValue(byte);
  if (value < 0) return Bad();
  unit_ = unit_ * 16 + static_cast<uint32_t>(value);
  if (++unit_digits_ < 4) return true;
  const bool is_low = unit_ >= 0xDC00 && unit_ <= 0xDFFF;
  if (is_low != is_low_) return Bad();
  const bool is_high = unit_ >= 0xD800 && unit_ <= 0xDBFF;
  is_low_ = is_high;
  expect_ = is_high ? Expect::kLowUnit : Expect::kString;
  return true;
}

bool JsonScan::StepString(char byte) {
  switch (expect_) {
    case Expect::kString:
      if (static_cast<uint8_t>(byte) < 0x20) return Bad();
      if (byte == '\\') expect_ = Expect::kEscape;
      if (byte != '"') return true;
      if (is_key_) {
        expect_ = Expect::kColon;
      } else {
        EndValue();
      }
      return true;
    case Expect::kLowUnit:
      if (byte != '\\') return Bad();
      expect_ = Expect::kLowEscape;
      return true;
    case Expect::kLowEscape:
    case Expect::kEscape:
      if (byte == 'u') {
        expect_ = Expect::kUnit;
        unit_ = 0;
        unit_digits_ = 0;
        return true;
      }
      if (expect_ == Expect::kLowEscape) return Bad();
      if (std::string_view("\"\\/bfnrt").find(byte) == std::string_view::npos) return Bad();
      expect_ = Expect::kString;
      return true;
    default: return StepUnit(byte);
  }
}

bool JsonScan::StepNumber(char byte) {
  const Digits at = digits_;
  if (IsDigit(byte)) {
    switch (at) {
      case Digits::kSign: digits_ = byte == '0' ? Digits::kZero : Digits::kWhole; return true;
      case Digits::kZero: return Bad();
      case Digits::kPoint: digits_ = Digits::kFraction; return true;
      case Digits::kE:
      case Digits::kESign: digits_ = Digits::kExponent; return true;
      default: return true;
    }
  }
  const bool is_whole = at == Digits::kZero || at == Digits::kWhole;
  if (byte == '.' && is_whole) {
    digits_ = Digits::kPoint;
    return true;
  }
  if ((byte == 'e' || byte == 'E') && (is_whole || at == Digits::kFraction)) {
    digits_ = Digits::kE;
    return true;
  }
  if ((byte == '-' || byte == '+') && at == Digits::kE) {
    digits_ = Digits::kESign;
    return true;
  }
  if (!is_whole && at != Digits::kFraction && at != Digits::kExponent) return Bad();
  EndValue();
  return false;
}

bool JsonScan::Step(char byte) {
  switch (expect_) {
    case Expect::kString:
    case Expect::kEscape:
    case Expect::kUnit:
    case Expect::kLowUnit:
    case Expect::kLowEscape: return StepString(byte);
    case Expect::kNumber: return StepNumber(byte);
    case Expect::kWord:
      if (byte != word_.front()) return Bad();
      word_.remove_prefix(1);
      if (word_.empty()) EndValue();
      return true;
    default: break;
  }
  if (byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r') return true;
  const bool may_end = expect_ == Expect::kCommaOrEnd || expect_ == Expect::kKeyOrEnd ||
                       expect_ == Expect::kValueOrEnd;
  if (may_end && !open_.empty() && byte == (open_.back() == '{' ? '}' : ']')) {
    open_.pop_back();
    EndValue();
    return true;
  }
  switch (expect_) {
    case Expect::kValue:
    case Expect::kValueOrEnd: return BeginValue(byte);
    case Expect::kKey:
    case Expect::kKeyOrEnd:
      if (byte != '"') return Bad();
      is_key_ = true;
      expect_ = Expect::kString;
      return true;
    case Expect::kColon:
      if (byte != ':') return Bad();
      expect_ = Expect::kValue;
      return true;
    default:
      if (byte != ',') return Bad();
      expect_ = open_.back() == '{' ? Expect::kKey : Expect::kValue;
      return true;
  }
}

}  // namespace kvant
