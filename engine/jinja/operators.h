// Python's operators on values. Whatever Python refuses is kInvalid, and so are whole numbers
// beyond 64 bits.
//
// Thread-safety: one run, one thread.
#pragma once

#include <string_view>
#include <vector>

#include "engine/jinja/run.h"

namespace kvant::jinja {

enum class Arithmetic : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower
};
Result<Value> Compute(Run& run, Arithmetic operation, const Value& left, const Value& right);
Result<Value> Negate(const Value& value);

enum class Comparison : uint8_t {
  kEqual,
  kUnequal,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};
Result<bool> Compare(Run& run, Comparison comparison, const Value& left, const Value& right);
// left < right, of numbers, strings, lists and tuples.
Result<bool> Less(const Value& left, const Value& right);
Result<bool> Contains(const Value& container, const Value& item);

// value.name and value[key]; undefined where there is no such thing.
Result<Value> GetAttribute(Run& run, const Value& value, std::string_view name);
Result<Value> GetItem(Run& run, const Value& value, const Value& key);
// value[from:to:step]; each undefined or None where it is left out.
Result<Value> Slice(Run& run, const Value& value, const Value& from, const Value& to,
                    const Value& step);

// The items that a loop over the value sees; a generator has none left afterwards.
Result<std::vector<Value>> Items(Run& run, const Value& value);
Result<int64_t> Length(const Value& value);

// The value called. kInvalid for what cannot be called.
Result<Value> CallValue(Run& run, const Value& callee, const Arguments& arguments);

// Printf-style formatting: "%s and %d" % (a, b).
Result<Value> FormatPercent(Run& run, const Text& format, const Value& arguments);

// str.format: "{} and {name}".
Result<Value> FormatBraces(Run& run, const Text& format, const Arguments& arguments);

}  // namespace kvant::jinja
