#include "engine/grammar/schema/json_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "formats/quoted.h"

namespace kvant::grammar {

const JsonValue* JsonValue::Find(std::string_view key) const {
  const auto found = std::ranges::find(members, key, &Member::first);
  return found == members.end() ? nullptr : found->second;
}

// Takes the events of nlohmann's parser, which does not recurse.
class JsonTree::Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(JsonTree& tree, std::string_view text, const std::string& what)
      : tree_(tree), text_(text), what_(what) {}

  const Error& error() const { return error_; }

  bool null() override { return Place({JsonValue::Kind::kNull}); }
  bool boolean(bool value) override {
    return Place({value ? JsonValue::Kind::kTrue : JsonValue::Kind::kFalse});
  }
  bool number_integer(number_integer_t value) override { return Number(fmt::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Number(fmt::to_string(value)); }
  bool number_float(number_float_t, const string_t& value) override { return Number(value); }
  bool string(string_t& value) override {
    return Place({JsonValue::Kind::kString, std::move(value)});
  }
  bool binary(binary_t&) override { return false; }  // not in JSON text
  bool start_object(std::size_t) override { return Open(JsonValue::Kind::kObject); }
  bool start_array(std::size_t) override { return Open(JsonValue::Kind::kArray); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& value) override {
    if (open_.back().keys.contains(value)) {
      return Fail("expected each key once in an object, found {} twice", formats::Quoted(value));
    }
    open_.back().keys.insert(value);
    key_ = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    const std::string_view before = text_.substr(0, std::min(position, text_.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t line_begin = before.rfind('\n') + 1;  // 0 where there is none
    return Fail("line {}, column {}: expected JSON, found what is none", line,
                before.size() - line_begin);
  }

 private:
  struct Level {
    JsonValue* value;
    std::set<std::string, std::less<>> keys;
  };

  template <class... Args>
  bool Fail(fmt::format_string<Args...> format, Args&&... args) {
    error_ = MakeError(ErrorCode::kInvalid, "{}: {}", what_,
                       fmt::format(format, std::forward<Args>(args)...));
    return false;
  }

  bool Place(JsonValue value) {
    JsonValue& placed = tree_.values_.emplace_back(std::move(value));
    placed_ = &placed;
    if (open_.empty()) return true;
    JsonValue& parent = *open_.back().value;
    placed.parent = &parent;
    if (parent.is(JsonValue::Kind::kArray)) {
      parent.items.push_back(&placed);
    } else {
      parent.members.emplace_back(std::move(key_), &placed);
    }
    return true;
  }

  bool Number(const std::string& text) {
    const std::optional<Decimal> number = ParseDecimal(text);
    if (!number.has_value()) {
      return Fail("expected numbers of at most {} digits, found {}", kDecimalDigitsMax,
                  formats::Quoted(text));
    }
    JsonValue value = {JsonValue::Kind::kNumber};
    value.number = *number;
    return Place(std::move(value));
  }

  bool Open(JsonValue::Kind kind) {
    if (open_.size() == kDepthMax) {
      return Fail("expected at most {} nested objects and arrays", kDepthMax);
    }
    Place({kind});
    open_.push_back({placed_, {}});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  JsonTree& tree_;
  std::string_view text_;
  const std::string& what_;
  std::vector<Level> open_;  // outermost first
  std::string key_;          // of the next value
  JsonValue* placed_ = nullptr;
  Error error_;
};

Result<std::unique_ptr<const JsonTree>> JsonTree::Parse(std::string_view text,
                                                        const std::string& what) {
  if (text.size() > kBytesMax) {
    return MakeError(ErrorCode::kInvalid, "{}: expected at most {} bytes, found {}", what,
                     kBytesMax, text.size());
  }
  auto tree = std::make_unique<JsonTree>();
  Builder builder(*tree, text, what);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return builder.error();
  return std::unique_ptr<const JsonTree>(std::move(tree));
}

bool AreEqual(const JsonValue& first, const JsonValue& second) {
  if (first.kind != second.kind) return false;
  switch (first.kind) {
    case JsonValue::Kind::kNull:
    case JsonValue::Kind::kFalse:
    case JsonValue::Kind::kTrue: return true;
    case JsonValue::Kind::kNumber: return first.number == second.number;
    case JsonValue::Kind::kString: return first.text == second.text;
    case JsonValue::Kind::kArray:
      return std::ranges::equal(
          first.items, second.items,
          [](const JsonValue* a, const JsonValue* b) { return AreEqual(*a, *b); });
    case JsonValue::Kind::kObject: break;
  }
  if (first.members.size() != second.members.size()) return false;
  return std::ranges::all_of(first.members, [&](const JsonValue::Member& member) {
    const JsonValue* other = second.Find(member.first);
    return other != nullptr && AreEqual(*member.second, *other);
  });
}

std::string PointerTo(const JsonValue& value) {
  std::vector<std::string> words;
  const JsonValue* at = &value;
  for (; at->parent != nullptr; at = at->parent) {
    const JsonValue& parent = *at->parent;
    if (parent.is(JsonValue::Kind::kArray)) {
      words.push_back(fmt::to_string(std::ranges::find(parent.items, at) - parent.items.begin()));
      continue;
    }
    std::string word;
    const auto member = std::ranges::find(parent.members, at, &JsonValue::Member::second);
    for (const char byte : member->first) {
      if (byte == '~') {
        word += "~0";
      } else if (byte == '/') {
        word += "~1";
      } else {
        word += byte;
      }
    }
    words.push_back(std::move(word));
  }
  std::string pointer;
  for (size_t i = words.size(); i-- > 0;) pointer += "/" + words[i];
  return pointer;
}

const JsonValue* FindByPointer(const JsonValue& root, std::string_view pointer) {
  const JsonValue* at = &root;
  while (at != nullptr && !pointer.empty()) {
    if (pointer[0] != '/') return nullptr;
    pointer.remove_prefix(1);
    const size_t length = std::min(pointer.find('/'), pointer.size());
    std::string word;
    for (size_t i = 0; i < length; ++i) {
      if (pointer[i] == '~' && i + 1 < length) {
        ++i;
        word += pointer[i] == '1' ? '/' : '~';
      } else {
        word += pointer[i];
      }
    }
    pointer.remove_prefix(length);
    if (at->is(JsonValue::Kind::kObject)) {
      at = at->Find(word);
      continue;
    }
    const bool is_number = !word.empty() && word.size() < 9 &&
                           std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
    const size_t place = is_number ? std::stoul(word) : at->items.size();
    at = place < at->items.size() ? at->items[place] : nullptr;
  }
  return at;
}

std::string ShownValue(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::kNull: return "null";
    case JsonValue::Kind::kFalse: return "false";
    case JsonValue::Kind::kTrue: return "true";
    case JsonValue::Kind::kString: return formats::Quoted(value.text);
    case JsonValue::Kind::kArray: return fmt::format("an array of {}", value.items.size());
    case JsonValue::Kind::kObject: return fmt::format("an object of {}", value.members.size());
    case JsonValue::Kind::kNumber: break;
  }
  const std::string fraction = value.number.Fraction();
  const std::string shown = (value.number.negative ? "-" : "") + value.number.Whole() +
                            (fraction.empty() ? "" : "." + fraction);
  return shown.size() > 40 ? shown.substr(0, 40) + "..." : shown;
}

}  // namespace kvant::grammar
