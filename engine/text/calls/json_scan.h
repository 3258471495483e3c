// Finds the end of a JSON value (RFC 8259) that comes in pieces, and the first byte that is wrong.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kvant {

class JsonScan {
 public:
  enum class State : uint8_t { kMore, kDone, kBad };

  // Takes bytes up to the end of the value or to a byte that is wrong, and returns how many.
  // A number at the top ends at the byte behind it.
  size_t Take(std::string_view text);
  State state() const { return state_; }

 private:
  enum class Expect : uint8_t {
    kValue,
    kValueOrEnd,  // behind [
    kKey,
    kKeyOrEnd,  // behind {
    kColon,
    kCommaOrEnd,
    kString,
    kEscape,
    kUnit,     // of a \uXXXX
    kLowUnit,  // the backslash of the second half of a pair
    kLowEscape,
    kNumber,
    kWord,
  };
  enum class Digits : uint8_t { kSign, kZero, kWhole, kPoint, kFraction, kE, kESign, kExponent };

  bool Step(char byte);  // whether the byte was taken
  bool Bad();
  bool BeginValue(char byte);
  bool StepString(char byte);
  bool StepUnit(char byte);
  bool StepNumber(char byte);
  void EndValue();

  State state_ = State::kMore;
  Expect expect_ = Expect::kValue;
  Digits digits_ = Digits::kSign;
  bool is_key_ = false;
  int unit_digits_ = 0;
  uint32_t unit_ = 0;
  bool is_low_ = false;         // the unit is the second half of a pair
  std::string_view word_ = {};  // what is left of true, false or null
  std::vector<char> open_;      // { and [
};

}  // namespace kvant
