// Values of a template, with Python's types and semantics. All are immutable but objects (loops,
// macros, namespaces), which the run owns.
//
// Whole numbers are those of 64 bits, with a sign or without: -2^63 to 2^64 - 1. Where Python would
// compute others, there is an error. Containers know how
// deeply they are nested, up to kValueDepthMax, so that code may walk them by recursion.
// Thread-safety: values without objects and generators may be shared by threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "engine/jinja/text.h"

namespace kvant::jinja {

class Object;
class Value;

inline constexpr int kValueDepthMax = 100;
// The bytes and items of a value and, in turn, of its items, each as often as it can be reached.
inline constexpr size_t kValueWeightMax = size_t{1} << 26;

__extension__ typedef __int128 Whole;  // wide enough for sums, and for most products

inline constexpr Whole kWholeMin = INT64_MIN;
inline constexpr Whole kWholeMax = UINT64_MAX;

struct Undefined {
  std::shared_ptr<const std::string> what;  // "'x' is undefined"; may be null
};
struct None {};

// Lists and what else has items in order.
struct Sequence {
  enum class Kind : uint8_t { kList, kTuple, kRange, kView, kGenerator };
  Kind kind = Kind::kList;
  std::vector<Value> items;
  int depth = 1;
  size_t weight = 1;
  mutable size_t taken = 0;  // of a generator: what has been read is gone
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;     // in the order of insertion
  std::unordered_map<std::string, size_t> index;  // KeyOf -> place
  int depth = 1;
  size_t weight = 1;

  const Value* Find(const std::string& key) const;  // by KeyOf
  const Value* FindText(std::string_view name) const;
};

class Value {
 public:
  using TextPointer = std::shared_ptr<const Text>;
  using SequencePointer = std::shared_ptr<const Sequence>;
  using DictPointer = std::shared_ptr<const Dict>;

  Value() = default;                             // undefined
  Value(None none) : data_(none) {}              // NOLINT
  Value(bool value) : data_(value) {}            // NOLINT
  Value(int64_t value) : data_(Whole{value}) {}  // NOLINT
  Value(Whole value) : data_(value) {}           // NOLINT: from kWholeMin to kWholeMax
  Value(double value) : data_(value) {}          // NOLINT
  Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}  // NOLINT
  Value(const char*) = delete;
  Value(Object* object) : data_(object) {}  // NOLINT
  static Value Missing(std::string what);
  static Value Own(std::string_view text) { return Text(std::string(text)); }
  // kInvalid where the items are nested too deeply or weigh too much.
  static Result<Value> Make(Sequence::Kind kind, std::vector<Value> items);
  static Result<Value> Make(Dict dict);

  bool IsUndefined() const { return std::holds_alternative<Undefined>(data_); }
  bool IsNone() const { return std::holds_alternative<None>(data_); }
  bool IsBool() const { return std::holds_alternative<bool>(data_); }
  bool IsInt() const { return std::holds_alternative<Whole>(data_); }
  bool IsFloat() const { return std::holds_alternative<double>(data_); }
  bool IsText() const { return std::holds_alternative<TextPointer>(data_); }
  bool IsSequence() const { return std::holds_alternative<SequencePointer>(data_); }
  bool IsSequence(Sequence::Kind kind) const { return IsSequence() && sequence().kind == kind; }
  bool IsDict() const { return std::holds_alternative<DictPointer>(data_); }
  bool IsObject() const { return std::holds_alternative<Object*>(data_); }
  bool IsNumber() const { return IsBool() || IsInt() || IsFloat(); }
  bool IsWhole() const { return IsBool() || IsInt(); }

  // The content, which must have the type that was asked for above.
  bool boolean() const { return std::get<bool>(data_); }
  Whole whole() const { return IsBool() ? Whole{boolean()} : std::get<Whole>(data_); }
  // The number nearest to whole() that has 64 bits with a sign: for places and counts.
  int64_t place() const;
  double number() const { return IsFloat() ? std::get<double>(data_) : double(whole()); }
  const Text& text() const { return *std::get<TextPointer>(data_); }
  const Sequence& sequence() const { return *std::get<SequencePointer>(data_); }
  const Dict& dict() const { return *std::get<DictPointer>(data_); }
  Object* object() const { return std::get<Object*>(data_); }

  std::string UndefinedMessage() const;  // why this is undefined
  int depth() const;                     // 0 for what has no items
  size_t weight() const;                 // see kValueWeightMax
  bool Truth() const;
  std::string TypeName() const;  // Python's name, for messages

 private:
  std::variant<Undefined, None, bool, Whole, double, TextPointer, SequencePointer, DictPointer,
               Object*>
      data_;
};

// The members of a dict, kept by KeyOf.
class DictBuilder {
 public:
  Status Set(const Value& key, Value value);
  void SetText(std::string_view name, Value value);
  Result<Value> Finish() { return Value::Make(std::move(dict_)); }

 private:
  void SetAt(std::string index, const Value& key, Value value);
  Dict dict_;
};

// The text under which dicts and sets hold a value as a key: one text for 1, 1.0 and true. kInvalid
// for lists and dicts.
Result<std::string> KeyOf(const Value& value);

bool Equal(const Value& left, const Value& right);

// Python's str(x) and repr(x).
Text Str(const Value& value);
Text Repr(const Value& value);
std::string FloatText(double value);
std::string WholeText(Whole value);
// The float without what stands behind its point, if that has 64 bits.
std::optional<Whole> WholeOf(double value);

}  // namespace kvant::jinja
