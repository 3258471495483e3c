// A string of a template: UTF-8, and which of its bytes are foreign, that is, came from messages,
// tools or variables and not from the template. Cutting, joining and replacing keep the marks, so
// that the rendered text says which control tokens the template itself wrote.
//
// Thread-safety: values.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/text_range.h"

namespace kvant::jinja {

using ByteRange = TextRange;

class Text {
 public:
  Text() = default;
  explicit Text(std::string own) : bytes_(std::move(own)) {}
  static Text Foreign(std::string bytes);

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  const std::vector<ByteRange>& foreign() const { return foreign_; }  // ascending, disjoint
  bool has_foreign() const { return !foreign_.empty(); }
  std::string TakeBytes() && { return std::move(bytes_); }

  // The filter "safe" makes markup: joined to other strings with +, it escapes them for HTML.
  bool markup() const { return markup_; }
  void SetMarkup(bool value) { markup_ = value; }

  void Append(std::string_view own) { bytes_ += own; }
  void AppendForeign(std::string_view bytes);
  void Append(const Text& other) { AppendPart(other, 0, other.size()); }
  void AppendPart(const Text& other, size_t begin, size_t end);
  // Appends bytes that stand for the bytes of `origin` from `begin` to `end`, with their mark.
  void AppendAs(std::string_view bytes, const Text& origin, size_t begin, size_t end);
  Text Part(size_t begin, size_t end) const;
  bool IsForeign(size_t begin, size_t end) const;  // whether any byte of the range is

 private:
  void Mark(size_t begin, size_t end);

  std::string bytes_;
  std::vector<ByteRange> foreign_;
  bool markup_ = false;
};

// Python's white space: what strip, split and isspace mean.
bool IsPythonSpace(char32_t code_point);

// The text without white space (or without `characters`, if given) at the sides that are asked for.
enum class Side : unsigned char { kLeft, kRight, kBoth };
Text StripText(const Text& text, Side side);
Text StripText(const Text& text, Side side, std::string_view characters);

// Each character replaced by what `map` makes of it.
Text MapCharacters(const Text& text, const std::function<std::string(char32_t)>& map);

// Each `from` replaced by `to`, at most `count` of them from the left; all if it is negative. An
// empty `from` is found before every character and at the end.
Text ReplaceText(const Text& text, std::string_view from, const Text& to, long long count);

// &, <, >, ' and " as HTML entities.
Text EscapeHtml(const Text& text);

size_t CountCharacters(std::string_view text);
// Byte offset of each character, and the size at the end.
std::vector<size_t> CharacterOffsets(std::string_view text);

}  // namespace kvant::jinja
