// The tree is built from the events of nlohmann's parser, which keeps its own stack: parsing does
// not recurse, however deep the text claims to be.
#include "formats/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "formats/quoted.h"

namespace kvant::formats {
namespace {

// The longest piece of a value that a message repeats.
constexpr size_t kShownBytesMax = 400;

class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  TreeBuilder(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Json& root() { return root_; }
  const Error& error() const { return error_; }

  bool null() override { return Place(nullptr); }
  bool boolean(bool value) override { return Place(value); }
  bool number_integer(number_integer_t value) override { return Place(value); }
  bool number_unsigned(number_unsigned_t value) override { return Place(value); }
  bool number_float(number_float_t value, const string_t&) override { return Place(value); }
  bool string(string_t& value) override { return Place(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in JSON text

  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& value) override {
    const auto [member, is_new] = open_.back()->get_ref<Json::object_t&>().emplace(value, nullptr);
    if (!is_new) {
      error_ = MakeError(ErrorCode::kCorrupt, "{}: the key {} occurs twice in one object", file_,
                         Quoted(value));
      return false;
    }
    member_ = &member->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    const std::string_view before = text_.substr(0, std::min(position, text_.size()));
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t line_begin = before.rfind('\n') + 1;  // 0 where there is none
    error_ = MakeError(ErrorCode::kCorrupt, "{}: not valid JSON at line {}, column {}", file_, line,
                       before.size() - line_begin);
    return false;
  }

 private:
  // Adds a value to the innermost open object or array.
  bool Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      placed_ = &root_;
    } else if (open_.back()->is_array()) {
      placed_ = &open_.back()->emplace_back(std::move(value));
    } else {
      *member_ = std::move(value);
      placed_ = member_;
    }
    return true;
  }

  bool Open(Json value) {
    if (open_.size() == size_t{kJsonDepthMax}) {
      error_ = MakeError(ErrorCode::kCorrupt, "{}: JSON is nested deeper than {} levels", file_,
                         kJsonDepthMax);
      return false;
    }
    Place(std::move(value));
    open_.push_back(placed_);
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  const std::string& file_;
  Json root_;
  std::vector<Json*> open_;  // objects and arrays around the place, outermost first
  Json* member_ = nullptr;   // the value of the last key
  Json* placed_ = nullptr;   // the last value
  Error error_;
};

}  // namespace

Result<Json> ParseJson(std::string_view text, const std::string& file) {
  TreeBuilder builder(text, file);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) return builder.error();
  return std::move(builder.root());
}

namespace {

// The words that Python writes in place of numbers and JSON lacks. The first begins with another.
constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};

// The object with one member that transformers writes in place of such a word.
constexpr std::string_view kWordKey = "__float__";

// The text with such objects in place of the words, outside of strings.
std::string WithoutWords(std::string_view text) {
  std::string plain;
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') in_string = !in_string;
    const auto* word = std::ranges::find_if(kWords, [&](std::string_view one) {
      return !in_string && text.substr(i).starts_with(one);
    });
    if (word != std::end(kWords)) {
      plain += fmt::format(R"({{"{}":"{}"}})", kWordKey, *word);
      i += word->size();
      continue;
    }
    const size_t count = in_string && text[i] == '\\' ? 2 : 1;  // the next is escaped
    plain += text.substr(i, count);
    i += count;
  }
  return plain;
}

// Puts numbers, or null, in the place of such objects. The tree is at most kJsonDepthMax deep.
void PlaceNumbers(Json& value) {
  const auto word = value.is_object() && value.size() == 1 ? value.find(kWordKey) : value.end();
  if (!value.is_object() || word == value.end() || !word->is_string()) {
    for (Json& member : value) {
      if (member.is_structured()) PlaceNumbers(member);
    }
    return;
  }
  const auto text = word->get<std::string>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (text == "Infinity") value = kInfinity;
  if (text == "-Infinity") value = -kInfinity;
  if (text == "NaN") value = nullptr;
}

// The value with texts in place of infinite numbers, which JSON has not.
Json WithoutInfinities(const Json& value) {
  if (value.is_number_float() && std::isinf(value.get<double>())) {
    return value.get<double>() > 0 ? "Infinity" : "-Infinity";
  }
  if (!value.is_structured()) return value;
  Json plain = value;
  for (Json& member : plain) member = WithoutInfinities(member);
  return plain;
}

}  // namespace

Result<Json> ReadJson(const std::string& path, uint64_t bytes_max) {
  KVANT_ASSIGN(const MappedFile file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() > bytes_max) {
    return MakeError(ErrorCode::kCorrupt, "{}: the file has {} bytes, expected at most {}", path,
                     bytes.size(), bytes_max);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto has = [text](std::string_view word) { return text.find(word) != text.npos; };
  if (!has("Infinity") && !has("NaN")) return ParseJson(text, path);
  KVANT_ASSIGN(Json json, ParseJson(WithoutWords(text), path));
  PlaceNumbers(json);
  return json;
}

std::string JsonText(const Json& object, std::string_view key, std::string_view otherwise) {
  const auto member = object.is_object() ? object.find(key) : object.end();
  const bool found = member != object.end() && member->is_string();
  return found ? member->get<std::string>() : std::string(otherwise);
}

bool JsonFlag(const Json& object, std::string_view key, bool otherwise) {
  const auto member = object.is_object() ? object.find(key) : object.end();
  return member != object.end() && member->is_boolean() ? member->get<bool>() : otherwise;
}

std::string Shown(const Json& value) {
  std::string text = WithoutInfinities(value).dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() <= kShownBytesMax) return text;
  size_t end = kShownBytesMax;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

}  // namespace kvant::formats
