// A JSON text as a tree that keeps what schemas depend on: the order of properties, numbers as they
// are written, and where each value stands.
//
// Thread-safety: const after Parse; may be shared freely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/grammar/schema/decimal.h"

namespace kvant::grammar {

struct JsonValue {
  enum class Kind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  using Member = std::pair<std::string, const JsonValue*>;

  Kind kind = Kind::kNull;
  std::string text = {};                     // kString: its value, in UTF-8
  Decimal number = {};                       // kNumber
  std::vector<const JsonValue*> items = {};  // kArray
  std::vector<Member> members = {};          // kObject, in their order
  const JsonValue* parent = nullptr;

  bool is(Kind other) const { return kind == other; }
  bool is_bool() const { return kind == Kind::kFalse || kind == Kind::kTrue; }
  // The value of a key; null where there is none, or this is no object.
  const JsonValue* Find(std::string_view key) const;
};

class JsonTree {
 public:
  static constexpr size_t kBytesMax = size_t{4} << 20;
  static constexpr size_t kDepthMax = 128;

  // kInvalid, which names `what`, for a text that is not JSON, has a key twice in an object or a
  // number of over 400 digits, or is beyond the limits above.
  static Result<std::unique_ptr<const JsonTree>> Parse(std::string_view text,
                                                       const std::string& what);

  const JsonValue& root() const { return values_.front(); }

 private:
  class Builder;
  std::deque<JsonValue> values_;
};

// Whether two values are equal: numbers by value, objects in any order.
bool AreEqual(const JsonValue& first, const JsonValue& second);

// Where a value stands, as a JSON pointer (RFC 6901): "/properties/a~1b/items", "" for the root.
std::string PointerTo(const JsonValue& value);
// The value that stands there; null for nothing. `pointer`: as above.
const JsonValue* FindByPointer(const JsonValue& root, std::string_view pointer);

// A value as it appears in messages, cut where it is long.
std::string ShownValue(const JsonValue& value);

}  // namespace kvant::grammar
