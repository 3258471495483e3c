#include "engine/jinja/text.h"

#include <algorithm>

#include "engine/tokenizer/unicode.h"

namespace kvant::jinja {

Text Text::Foreign(std::string bytes) {
  Text text(std::move(bytes));
  text.Mark(0, text.size());
  return text;
}

void Text::Mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!foreign_.empty() && foreign_.back().end == begin) {
    foreign_.back().end = end;
  } else {
    foreign_.push_back({begin, end});
  }
}

void Text::AppendForeign(std::string_view bytes) {
  const size_t begin = size();
  bytes_ += bytes;
  Mark(begin, size());
}

void Text::AppendPart(const Text& other, size_t begin, size_t end) {
  const size_t at = size();
  bytes_.append(other.bytes_, begin, end - begin);
  auto range = std::lower_bound(other.foreign_.begin(), other.foreign_.end(), begin,
                                [](const ByteRange& r, size_t value) { return r.end <= value; });
  for (; range != other.foreign_.end() && range->begin < end; ++range) {
    Mark(at + std::max(range->begin, begin) - begin, at + std::min(range->end, end) - begin);
  }
}

void Text::AppendAs(std::string_view bytes, const Text& origin, size_t begin, size_t end) {
  if (origin.IsForeign(begin, end)) {
    AppendForeign(bytes);
  } else {
    Append(bytes);
  }
}

Text Text::Part(size_t begin, size_t end) const {
  Text part;
  part.AppendPart(*this, begin, end);
  part.markup_ = markup_;
  return part;
}

bool Text::IsForeign(size_t begin, size_t end) const {
  const auto range =
      std::lower_bound(foreign_.begin(), foreign_.end(), begin,
                       [](const ByteRange& r, size_t value) { return r.end <= value; });
  return range != foreign_.end() && range->begin < end;
}

bool IsPythonSpace(char32_t code_point) {
  return IsWhiteSpace(code_point) || (code_point >= 0x1C && code_point <= 0x1F);
}

namespace {

// The begin of the last character of a text that is not empty.
size_t LastCharacter(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 &&
         (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  return begin;
}

template <class Matches>
Text StripWhere(const Text& text, Side side, const Matches& matches) {
  size_t begin = 0;
  size_t end = text.size();
  while (side != Side::kRight && begin < end) {
    const Utf8Char c = DecodeUtf8(text.view().substr(begin, end - begin));
    if (!matches(c.code_point)) break;
    begin += c.size;
  }
  while (side != Side::kLeft && begin < end) {
    const size_t last = begin + LastCharacter(text.view().substr(begin, end - begin));
    if (!matches(DecodeUtf8(text.view().substr(last, end - last)).code_point)) break;
    end = last;
  }
  return text.Part(begin, end);
}

}  // namespace

Text StripText(const Text& text, Side side) { return StripWhere(text, side, IsPythonSpace); }

Text StripText(const Text& text, Side side, std::string_view characters) {
  std::u32string set;
  for (size_t i = 0; i < characters.size();) {
    const Utf8Char c = DecodeUtf8(characters.substr(i));
    set += c.code_point;
    i += c.size;
  }
  return StripWhere(text, side, [&](char32_t c) { return set.find(c) != std::u32string::npos; });
}

Text MapCharacters(const Text& text, const std::function<std::string(char32_t)>& map) {
  Text mapped;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text.view().substr(i));
    mapped.AppendAs(map(c.code_point), text, i, i + c.size);
    i += c.size;
  }
  mapped.SetMarkup(text.markup());
  return mapped;
}

Text ReplaceText(const Text& text, std::string_view from, const Text& to, long long count) {
  Text out;
  size_t begin = 0;  // of what is not yet copied
  size_t at = 0;
  while (count != 0 && at <= text.size()) {
    at = from.empty() ? at : text.view().find(from, at);
    if (at == std::string_view::npos) break;
    out.AppendPart(text, begin, at);
    out.Append(to);
    begin = at + from.size();
    at = begin;
    if (from.empty()) {
      if (at == text.size()) break;
      at += DecodeUtf8(text.view().substr(at)).size;
    }
    --count;
  }
  out.AppendPart(text, begin, text.size());
  out.SetMarkup(text.markup());
  return out;
}

Text EscapeHtml(const Text& text) {
  Text out = MapCharacters(text, [](char32_t c) -> std::string {
    if (c == '&') return "&amp;";
    if (c == '<') return "&lt;";
    if (c == '>') return "&gt;";
    if (c == '\'') return "&#39;";
    if (c == '"') return "&#34;";
    std::string same;
    AppendUtf8(c, same);
    return same;
  });
  out.SetMarkup(true);
  return out;
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::vector<size_t> CharacterOffsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) offsets.push_back(i);
  }
  offsets.push_back(text.size());
  return offsets;
}

}  // namespace kvant::jinja
