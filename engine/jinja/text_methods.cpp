// Methods of strings that cut, search, replace and fill.
#include <algorithm>

#include "engine/jinja/native_code.h"
#include "engine/jinja/operators.h"
#include "engine/tokenizer/unicode.h"

namespace kvant::jinja {
namespace {

Result<Value> Strip(Run& run, const Value& self, const Bound& arguments, Side side) {
  if (!arguments.Has(0) || arguments[0].IsNone()) return run.Make(StripText(self.text(), side));
  KVANT_ASSIGN(const Text characters, arguments.String(0, ""));
  return run.Make(StripText(self.text(), side, characters.view()));
}

Result<Value> ListOfTexts(Run& run, Sequence::Kind kind, std::vector<Text> texts) {
  std::vector<Value> items;
  for (Text& text : texts) {
    KVANT_ASSIGN(Value item, run.Make(std::move(text)));
    items.push_back(std::move(item));
  }
  return run.Make(kind, std::move(items));
}

// The words between white space, at most `most` + 1 if that is not negative.
std::vector<Text> SplitWords(const Text& text, int64_t most) {
  std::vector<Text> words;
  size_t begin = std::string::npos;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text.view().substr(i));
    const bool space = IsPythonSpace(c.code_point);
    if (!space && begin == std::string::npos) {
      if (most >= 0 && static_cast<int64_t>(words.size()) == most) {
        words.push_back(text.Part(i, text.size()));
        return words;
      }
      begin = i;
    }
    if (space && begin != std::string::npos) {
      words.push_back(text.Part(begin, i));
      begin = std::string::npos;
    }
    i += c.size;
  }
  if (begin != std::string::npos) words.push_back(text.Part(begin, text.size()));
  return words;
}

std::vector<Text> SplitFromRight(const Text& text, std::string_view separator, int64_t most) {
  std::vector<Text> pieces;
  size_t end = text.size();
  for (; most != 0; --most) {
    const size_t found = end < separator.size() ? std::string_view::npos
                                                : text.view().substr(0, end).rfind(separator);
    if (found == std::string_view::npos) break;
    pieces.push_back(text.Part(found + separator.size(), end));
    end = found;
  }
  pieces.push_back(text.Part(0, end));
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

// Words from the right: the rest on the left stays as it is.
std::vector<Text> SplitWordsFromRight(const Text& text, int64_t most) {
  std::vector<Text> words = SplitWords(text, -1);
  if (most < 0 || static_cast<int64_t>(words.size()) <= most) return words;
  Text rest = StripText(text, Side::kRight);
  for (int64_t i = 0; i < most; ++i) {
    rest = StripText(rest.Part(0, rest.size() - words[words.size() - 1 - size_t(i)].size()),
                     Side::kRight);
  }
  words.erase(words.begin(), words.end() - static_cast<std::ptrdiff_t>(most));
  if (rest.size() > 0) words.insert(words.begin(), rest);
  return words;
}

enum class End : uint8_t { kBegin, kEnd };
Result<Value> HasAtEnd(const Value& self, const Value& part, End end) {
  if (part.IsSequence(Sequence::Kind::kTuple)) {
    for (const Value& one : part.sequence().items) {
      if (!one.IsText()) return Wrong("expected strings, found {}", one.TypeName());
      KVANT_ASSIGN(const Value has, HasAtEnd(self, one, end));
      if (has.Truth()) return has;
    }
    return Value(false);
  }
  if (!part.IsText()) return Wrong("expected a string, found {}", part.TypeName());
  const std::string_view text = self.text().view();
  return Value(end == End::kBegin ? text.starts_with(part.text().view())
                                  : text.ends_with(part.text().view()));
}

// The number of the character at a byte, and -1 for none.
int64_t CharacterAt(std::string_view text, size_t byte) {
  return byte == std::string_view::npos
             ? -1
             : static_cast<int64_t>(CountCharacters(text.substr(0, byte)));
}

Result<int64_t> FindFrom(Run& run, const Value& self, const Bound& arguments) {
  KVANT_TRY(run.Read(self));
  KVANT_ASSIGN(const Text part, arguments.String(0, ""));
  KVANT_ASSIGN(int64_t start, arguments.Whole(1, 0));
  const std::string_view text = self.text().view();
  size_t begin = 0;
  if (start != 0) {
    const std::vector<size_t> offsets = CharacterOffsets(text);
    const auto count = static_cast<int64_t>(offsets.size()) - 1;
    if (start < 0) start = std::max<int64_t>(start + count, 0);
    if (start > count) return -1;
    begin = offsets[static_cast<size_t>(start)];
  }
  return CharacterAt(text, text.find(part.view(), begin));
}

enum class Justify : uint8_t { kLeft, kRight };
Result<Value> JustifyText(Run& run, const Value& self, const Bound& arguments, Justify justify) {
  KVANT_ASSIGN(const int64_t width, arguments.Whole(0, 0));
  KVANT_ASSIGN(const Text fill, arguments.String(1, " "));
  if (CountCharacters(fill.view()) != 1) return Wrong("expected one character to fill with");
  const auto size = static_cast<int64_t>(CountCharacters(self.text().view()));
  if (width <= size) return self;
  KVANT_TRY(run.Charge(static_cast<size_t>(width) * 4));
  Text filling;
  for (int64_t i = size; i < width; ++i) filling.Append(fill);
  Text out = justify == Justify::kLeft ? self.text() : filling;
  out.Append(justify == Justify::kLeft ? filling : self.text());
  return run.Make(std::move(out));
}

Result<Value> Partition(Run& run, const Value& self, const Bound& arguments, Side from) {
  KVANT_ASSIGN(const Text separator, arguments.String(0, ""));
  if (separator.size() == 0) return Wrong("the separator is empty");
  const Text& text = self.text();
  const size_t at = from == Side::kLeft ? text.bytes().find(separator.bytes())
                                        : text.bytes().rfind(separator.bytes());
  if (at == std::string::npos) {
    std::vector<Text> whole(3);
    whole[from == Side::kLeft ? 0 : 2] = text;
    return ListOfTexts(run, Sequence::Kind::kTuple, std::move(whole));
  }
  return ListOfTexts(run, Sequence::Kind::kTuple,
                     {text.Part(0, at), separator, text.Part(at + separator.size(), text.size())});
}

}  // namespace

std::vector<Text> SplitText(const Text& text, std::string_view separator, int64_t most) {
  std::vector<Text> pieces;
  size_t begin = 0;
  for (; most != 0; --most) {
    const size_t found = text.view().find(separator, begin);
    if (found == std::string_view::npos) break;
    pieces.push_back(text.Part(begin, found));
    begin = found + separator.size();
  }
  pieces.push_back(text.Part(begin, text.size()));
  return pieces;
}

std::vector<Text> LinesOf(const Text& text) {
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = DecodeUtf8(text.view().substr(i));
    const char32_t code = c.code_point;
    const bool ends = (code >= 0xA && code <= 0xD) || (code >= 0x1C && code <= 0x1E) ||
                      code == 0x85 || code == 0x2028 || code == 0x2029;
    size_t next = i + c.size;
    if (ends) {
      lines.push_back(text.Part(begin, i));
      if (code == '\r' && next < text.size() && text.view()[next] == '\n') ++next;
      begin = next;
    }
    i = next;
  }
  if (begin < text.size()) lines.push_back(text.Part(begin, text.size()));
  return lines;
}

Text CenterText(const Text& text, int64_t width, const Text& fill) {
  const auto size = static_cast<int64_t>(CountCharacters(text.view()));
  if (width <= size) return text;
  const int64_t margin = width - size;
  const int64_t left = margin / 2 + (margin & width & 1);
  Text out;
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(text);
  for (int64_t i = left; i < margin; ++i) out.Append(fill);
  return out;
}

Result<Value> TextStripBoth(Run& run, const Value& self, const Bound& arguments) {
  return Strip(run, self, arguments, Side::kBoth);
}
Result<Value> TextStripLeft(Run& run, const Value& self, const Bound& arguments) {
  return Strip(run, self, arguments, Side::kLeft);
}
Result<Value> TextStripRight(Run& run, const Value& self, const Bound& arguments) {
  return Strip(run, self, arguments, Side::kRight);
}

Result<Value> TextCenter(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const int64_t width, arguments.Whole(0, 0));
  KVANT_ASSIGN(const Text fill, arguments.String(1, " "));
  if (CountCharacters(fill.view()) != 1) return Wrong("expected one character to fill with");
  if (width > 0) KVANT_TRY(run.Charge(static_cast<size_t>(width) * 4));
  return run.Make(CenterText(self.text(), width, fill));
}
Result<Value> TextLeftJustify(Run& run, const Value& self, const Bound& arguments) {
  return JustifyText(run, self, arguments, Justify::kLeft);
}
Result<Value> TextRightJustify(Run& run, const Value& self, const Bound& arguments) {
  return JustifyText(run, self, arguments, Justify::kRight);
}
Result<Value> TextZeroFill(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const int64_t width, arguments.Whole(0, 0));
  const Text& text = self.text();
  const auto size = static_cast<int64_t>(CountCharacters(text.view()));
  const size_t sign = text.view().starts_with('-') || text.view().starts_with('+') ? 1 : 0;
  if (width > size) KVANT_TRY(run.Charge(static_cast<size_t>(width)));
  Text out = text.Part(0, sign);
  if (width > size) out.Append(std::string(static_cast<size_t>(width - size), '0'));
  out.AppendPart(text, sign, text.size());
  return run.Make(std::move(out));
}

Result<Value> TextCount(Run& run, const Value& self, const Bound& arguments) {
  KVANT_TRY(run.Read(self));
  KVANT_ASSIGN(const Text part, arguments.String(0, ""));
  const std::string_view text = self.text().view();
  if (part.size() == 0) return Value(static_cast<int64_t>(CountCharacters(text)) + 1);
  int64_t count = 0;
  for (size_t at = text.find(part.view()); at != std::string_view::npos;
       at = text.find(part.view(), at + part.size())) {
    ++count;
  }
  return Value(count);
}

Result<Value> TextEndsWith(Run&, const Value& self, const Bound& arguments) {
  return HasAtEnd(self, arguments[0], End::kEnd);
}
Result<Value> TextStartsWith(Run&, const Value& self, const Bound& arguments) {
  return HasAtEnd(self, arguments[0], End::kBegin);
}

Result<Value> TextFind(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const int64_t place, FindFrom(run, self, arguments));
  return Value(place);
}
Result<Value> TextIndex(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const int64_t place, FindFrom(run, self, arguments));
  if (place < 0) return Wrong("the string has no such part");
  return Value(place);
}
Result<Value> TextFindLast(Run& run, const Value& self, const Bound& arguments) {
  KVANT_TRY(run.Read(self));
  KVANT_ASSIGN(const Text part, arguments.String(0, ""));
  const std::string_view text = self.text().view();
  return Value(CharacterAt(text, text.rfind(part.view())));
}

Result<Value> TextFormat(Run& run, const Value& self, const Bound& arguments) {
  return FormatBraces(run, self.text(), arguments.rest);
}

Result<Value> TextJoin(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const std::vector<Value> items, Items(run, arguments[0]));
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].IsText()) return Wrong("item {} is a {}", i, items[i].TypeName());
    if (i > 0) KVANT_TRY(run.Write(self.text(), out));
    KVANT_TRY(run.Write(items[i].text(), out));
  }
  return run.Make(std::move(out));
}

Result<Value> TextPartition(Run& run, const Value& self, const Bound& arguments) {
  return Partition(run, self, arguments, Side::kLeft);
}
Result<Value> TextPartitionLast(Run& run, const Value& self, const Bound& arguments) {
  return Partition(run, self, arguments, Side::kRight);
}

Result<Value> TextRemovePrefix(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const Text prefix, arguments.String(0, ""));
  const Text& text = self.text();
  if (!text.view().starts_with(prefix.view())) return self;
  return run.Make(text.Part(prefix.size(), text.size()));
}
Result<Value> TextRemoveSuffix(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const Text suffix, arguments.String(0, ""));
  const Text& text = self.text();
  if (!text.view().ends_with(suffix.view())) return self;
  return run.Make(text.Part(0, text.size() - suffix.size()));
}

Result<Value> TextReplace(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const Text from, arguments.String(0, ""));
  KVANT_ASSIGN(const Text to, arguments.String(1, ""));
  KVANT_ASSIGN(const int64_t count, arguments.Whole(2, -1));
  // Each byte may become the whole replacement.
  size_t most = 0;
  if (__builtin_mul_overflow(self.text().size() / std::max<size_t>(from.size(), 1) + 1,
                             to.size() + 1, &most)) {
    return Wrong("the replacement is too long");
  }
  if (most > (size_t{1} << 22)) KVANT_TRY(run.Charge(most));
  return run.Make(ReplaceText(self.text(), from.view(), to, count));
}

Result<Value> TextSplit(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const int64_t most, arguments.Whole(1, -1));
  KVANT_TRY(run.Charge(self.text().size()));
  if (!arguments.Has(0) || arguments[0].IsNone()) {
    return ListOfTexts(run, Sequence::Kind::kList, SplitWords(self.text(), most));
  }
  KVANT_ASSIGN(const Text separator, arguments.String(0, ""));
  if (separator.size() == 0) return Wrong("the separator is empty");
  return ListOfTexts(run, Sequence::Kind::kList, SplitText(self.text(), separator.view(), most));
}
Result<Value> TextSplitRight(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const int64_t most, arguments.Whole(1, -1));
  KVANT_TRY(run.Charge(self.text().size()));
  if (!arguments.Has(0) || arguments[0].IsNone()) {
    return ListOfTexts(run, Sequence::Kind::kList, SplitWordsFromRight(self.text(), most));
  }
  KVANT_ASSIGN(const Text separator, arguments.String(0, ""));
  if (separator.size() == 0) return Wrong("the separator is empty");
  return ListOfTexts(run, Sequence::Kind::kList,
                     SplitFromRight(self.text(), separator.view(), most));
}
Result<Value> TextSplitLines(Run& run, const Value& self, const Bound& arguments) {
  if (arguments.Flag(0, false)) return Wrong("lines with their ends are not supported");
  return ListOfTexts(run, Sequence::Kind::kList, LinesOf(self.text()));
}

}  // namespace kvant::jinja
