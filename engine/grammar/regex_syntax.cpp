#include "engine/grammar/regex_syntax.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/grammar/text_cursor.h"

namespace kvant::grammar {
namespace {

using CodePoints = RegexPool::CodePoints;

constexpr size_t kRegexBytesMax = size_t{64} << 10;
constexpr uint32_t kRegexCodePointMax = 0x10ffff;
constexpr uint32_t kPatternRepeatMax = 20'000;  // of searches, whose automata are bounded as such

constexpr std::array<CodePoints, 1> kDigits = {{{'0', '9'}}};
constexpr std::array<CodePoints, 4> kWord = {{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}};
constexpr std::array<CodePoints, 2> kSpace = {{{'\t', '\r'}, {' ', ' '}}};
// White space and line terminators of ECMAScript.
constexpr std::array<CodePoints, 10> kEcmaSpace = {{{'\t', '\r'},
                                                    {' ', ' '},
                                                    {0xa0, 0xa0},
                                                    {0x1680, 0x1680},
                                                    {0x2000, 0x200a},
                                                    {0x2028, 0x2029},
                                                    {0x202f, 0x202f},
                                                    {0x205f, 0x205f},
                                                    {0x3000, 0x3000},
                                                    {0xfeff, 0xfeff}}};
constexpr std::array<CodePoints, 3> kEcmaLineEnds = {
    {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}};

// All but the ranges, which are ascending.
std::vector<CodePoints> Complement(std::span<const CodePoints> ranges) {
  std::vector<CodePoints> rest;
  uint32_t next = 0;
  for (const CodePoints& range : ranges) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  rest.push_back({next, kRegexCodePointMax});
  return rest;
}

class RegexParser {
 public:
  RegexParser(std::string_view text, RegexUse use)
      : cursor_(use == RegexUse::kSearch ? "pattern" : "regex", text), use_(use) {}

  Result<RegexTree> Parse() {
    KVANT_TRY(cursor_.CheckUtf8());
    KVANT_ASSIGN(RegexTree tree, ParseAlternatives());
    if (!cursor_.at_end()) return cursor_.Expected("the end of the expression");
    return tree;
  }

 private:
  using Kind = RegexTree::Kind;

  Result<RegexTree> ParseAlternatives() {
    if (++depth_ > kGrammarDepthMax) {
      return cursor_.At(fmt::format("expected at most {} nested groups", kGrammarDepthMax));
    }
    RegexTree tree = {Kind::kEither};
    do {
      KVANT_ASSIGN(RegexTree part, ParseSequence());
      tree.parts.push_back(std::move(part));
    } while (cursor_.TakeText("|"));
    --depth_;
    return tree;
  }

  Result<RegexTree> ParseSequence() {
    RegexTree tree = {Kind::kSequence};
    const bool anchors_mean_nothing = depth_ == 1 && use_ == RegexUse::kWhole;
    if (anchors_mean_nothing) cursor_.TakeText("^");
    while (!cursor_.at_end() && cursor_.Peek() != '|' && cursor_.Peek() != ')') {
      if (anchors_mean_nothing && cursor_.Peek() == '$') {
        const size_t begin = cursor_.offset();
        cursor_.Take();
        if (cursor_.at_end() || cursor_.Peek() == '|') break;
        cursor_.Return(begin);
      }
      KVANT_ASSIGN(RegexTree atom, ParseAtom());
      KVANT_ASSIGN(RegexTree counted, ParseCounts(std::move(atom)));
      tree.parts.push_back(std::move(counted));
    }
    return tree;
  }

  static RegexTree CharsOf(std::vector<CodePoints> ranges, bool negated) {
    RegexTree tree = {Kind::kChars};
    tree.ranges = std::move(ranges);
    tree.negated = negated;
    return tree;
  }

  // The code points of \d \w \s; of none for another letter.
  std::span<const CodePoints> ClassOf(uint32_t lower) const {
    switch (lower) {
      case 'd': return kDigits;
      case 'w': return kWord;
      case 's': return use_ == RegexUse::kSearch ? std::span<const CodePoints>(kEcmaSpace) : kSpace;
      default: return {};
    }
  }

  Result<RegexTree> ParseAtom() {
    switch (cursor_.Peek()) {
      case '(': return ParseGroup();
      case '[': return ParseClass();
      case '.':
        cursor_.Take();
        if (use_ == RegexUse::kWhole) return CharsOf({{'\n', '\n'}}, true);
        return CharsOf({kEcmaLineEnds.begin(), kEcmaLineEnds.end()}, true);
      case '\\': {
        std::vector<CodePoints> ranges;
        KVANT_TRY(TakeEscape(ranges));
        return CharsOf(std::move(ranges), false);
      }
      case '^':
      case '$':
        if (use_ == RegexUse::kSearch) {
          return RegexTree{cursor_.Take() == '^' ? Kind::kBegin : Kind::kEnd};
        }
        return cursor_.At("expected no anchor within the expression: the whole text matches");
      case '*':
      case '+':
      case '?': return cursor_.Expected("something that is repeated");
      default: {
        if (cursor_.Peek() == '{' && LooksLikeCount()) {
          return cursor_.Expected("something that is repeated");
        }
        const uint32_t code = cursor_.Take();
        return CharsOf({{code, code}}, false);
      }
    }
  }

  Result<RegexTree> ParseGroup() {
    const size_t begin = cursor_.offset();
    cursor_.Take();
    std::optional<RegexTree> ahead;
    if (cursor_.TakeText("?")) {
      const bool is_name =
          cursor_.TakeText("P<") || (cursor_.StartsWith("<") && !cursor_.StartsWith("<=") &&
                                     !cursor_.StartsWith("<!") && cursor_.TakeText("<"));
      if (is_name) {
        while (!cursor_.TakeText(">")) {
          if (cursor_.at_end()) return cursor_.Expected("'>' behind the name of a group");
          cursor_.Take();
        }
      } else if (use_ == RegexUse::kSearch &&
                 (cursor_.StartsWith("=") || cursor_.StartsWith("!"))) {
        ahead = RegexTree{Kind::kAhead};
        ahead->negated = cursor_.Take() == '!';
      } else if (!cursor_.TakeText(":")) {
        cursor_.Return(begin);
        return cursor_.At(
            "expected a group (...), (?:...) or (?<name>...): lookaround and flags are not "
            "supported");
      }
    }
    KVANT_ASSIGN(RegexTree tree, ParseAlternatives());
    if (!cursor_.TakeText(")")) return cursor_.Expected("')'");
    if (!ahead.has_value()) return tree;
    ahead->parts.push_back(std::move(tree));
    return std::move(*ahead);
  }

  // Whether a count {m}, {m,} or {m,n} begins here; another brace is a character.
  bool LooksLikeCount() {
    TextCursor ahead = cursor_;
    ahead.Take();
    bool digits = false;
    while (ahead.Peek() >= '0' && ahead.Peek() <= '9') {
      ahead.Take();
      digits = true;
    }
    if (ahead.TakeText(",")) {
      while (ahead.Peek() >= '0' && ahead.Peek() <= '9') ahead.Take();
    }
    return digits && ahead.Peek() == '}';
  }

  Result<RegexTree> ParseCounts(RegexTree tree) {
    const size_t begin = cursor_.offset();
    uint32_t least = 0;
    uint32_t most = kNoLimit;
    if (cursor_.TakeText("+")) {
      least = 1;
    } else if (cursor_.TakeText("?")) {
      most = 1;
    } else if (cursor_.Peek() == '{' && LooksLikeCount()) {
      cursor_.Take();
      KVANT_ASSIGN(least, cursor_.TakeNumber(repeat_max()));
      most = least;
      if (cursor_.TakeText(",")) {
        most = kNoLimit;
        if (cursor_.Peek() != '}') {
          KVANT_ASSIGN(most, cursor_.TakeNumber(repeat_max()));
        }
      }
      cursor_.Take();
      if (most < least) {
        cursor_.Return(begin);
        return cursor_.At(fmt::format("expected counts in order, found {} to {}", least, most));
      }
    } else if (!cursor_.TakeText("*")) {
      return tree;
    }
    if (tree.kind == Kind::kBegin || tree.kind == Kind::kEnd || tree.kind == Kind::kAhead) {
      cursor_.Return(begin);
      return cursor_.At("expected no repetition of an anchor or a lookahead");
    }
    cursor_.TakeText("?");  // how little is taken first decides on nothing here
    if (cursor_.Peek() == '+') return cursor_.At("expected no possessive repetition, found '+'");
    if (cursor_.Peek() == '*' || cursor_.Peek() == '?') {
      return cursor_.Expected("something that is repeated");
    }
    RegexTree repeated = {Kind::kRepeat};
    repeated.least = least;
    repeated.most = most;
    repeated.parts.push_back(std::move(tree));
    return repeated;
  }

  // An escape, as the code points that it stands for.
  Status TakeEscape(std::vector<CodePoints>& ranges) {
    const size_t begin = cursor_.offset();
    cursor_.Take();
    const uint32_t letter = cursor_.Peek();
    const uint32_t lower = letter | 0x20u;
    const bool is_class = letter < 0x80 && !ClassOf(lower).empty();
    if (is_class) {
      cursor_.Take();
      const std::span<const CodePoints> found = ClassOf(lower);
      if (letter == lower) {
        ranges.insert(ranges.end(), found.begin(), found.end());
      } else {
        const std::vector<CodePoints> rest = Complement(found);
        ranges.insert(ranges.end(), rest.begin(), rest.end());
      }
      return {};
    }
    KVANT_ASSIGN(const uint32_t code, TakeEscapedCharacter(begin));
    ranges.push_back({code, code});
    return {};
  }

  // The character behind a backslash that stands at `begin`.
  Result<uint32_t> TakeEscapedCharacter(size_t begin) {
    const uint32_t letter = cursor_.Take();
    switch (letter) {
      case 'n': return uint32_t{'\n'};
      case 't': return uint32_t{'\t'};
      case 'r': return uint32_t{'\r'};
      case 'f': return uint32_t{'\f'};
      case 'v': return uint32_t{'\v'};
      case '0':
        if (cursor_.Peek() < '0' || cursor_.Peek() > '9') return uint32_t{0};
        break;
      case 'x':
      case 'u': return TakeCodePoint(letter == 'x' ? 2 : 4, begin);
      default: break;
    }
    const bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    const bool is_digit = letter >= '0' && letter <= '9';
    if (letter == TextCursor::kEnd || is_letter || is_digit) {
      cursor_.Return(begin);
      return cursor_.At(
          is_digit ? "expected no backreference"
                   : "expected one of the escapes d D w W s S n t r f v 0 x u, or a punctuation "
                     "mark behind the backslash");
    }
    return letter;
  }

  Result<uint32_t> TakeCodePoint(int digits, size_t begin) {
    uint32_t value = 0;
    if (cursor_.TakeText("{")) {
      for (int count = 0; !cursor_.TakeText("}"); ++count) {
        KVANT_ASSIGN(const uint32_t digit, cursor_.TakeHex(1));
        value = value << 4 | digit;
        if (count == 6) break;
      }
    } else {
      KVANT_ASSIGN(value, cursor_.TakeHex(digits));
    }
    if (value > kRegexCodePointMax || (value >= 0xd800 && value <= 0xdfff)) {
      cursor_.Return(begin);
      return cursor_.At(fmt::format("expected a Unicode character, found U+{:04X}", value));
    }
    return value;
  }

  Result<RegexTree> ParseClass() {
    const size_t begin = cursor_.offset();
    cursor_.Take();
    const bool negated = cursor_.TakeText("^");
    std::vector<CodePoints> ranges;
    bool is_first = use_ == RegexUse::kWhole;  // ECMAScript has empty classes
    while (is_first || cursor_.Peek() != ']') {
      if (cursor_.at_end()) {
        cursor_.Return(begin);
        return cursor_.At("expected ']' at the end of the class");
      }
      if (cursor_.StartsWith("[:")) return cursor_.At("expected no class of POSIX");
      is_first = false;
      KVANT_TRY(TakeRange(ranges));
    }
    cursor_.Take();
    return CharsOf(std::move(ranges), negated);
  }

  // A character, a range of them or an escape, of a class.
  Status TakeRange(std::vector<CodePoints>& ranges) {
    const size_t begin = cursor_.offset();
    KVANT_ASSIGN(const std::optional<uint32_t> first, TakeMember(ranges));
    const bool is_range = cursor_.StartsWith("-") && !cursor_.StartsWith("-]");
    if (!is_range) {
      if (first.has_value()) ranges.push_back({*first, *first});
      return {};
    }
    cursor_.Take();
    const bool had_first = first.has_value();
    KVANT_ASSIGN(const std::optional<uint32_t> last, TakeMember(ranges));
    if (!had_first || !last.has_value() || *last < *first) {
      cursor_.Return(begin);
      return cursor_.At("expected a range of characters in order");
    }
    ranges.push_back({*first, *last});
    return {};
  }

  // A character of a class; nothing where it was an escape for several, which `ranges` got.
  Result<std::optional<uint32_t>> TakeMember(std::vector<CodePoints>& ranges) {
    if (cursor_.at_end()) return cursor_.Expected("a character");
    if (cursor_.Peek() != '\\') return std::optional(cursor_.Take());
    if (cursor_.StartsWith("\\b")) {  // within a class it is a backspace
      cursor_.TakeText("\\b");
      return std::optional(uint32_t{'\b'});
    }
    std::vector<CodePoints> found;
    KVANT_TRY(TakeEscape(found));
    if (found.size() == 1 && found[0].first == found[0].last) {
      return std::optional(found[0].first);
    }
    ranges.insert(ranges.end(), found.begin(), found.end());
    return std::optional<uint32_t>();
  }

  uint32_t repeat_max() const {
    return use_ == RegexUse::kWhole ? kGrammarRepeatMax : kPatternRepeatMax;
  }

  TextCursor cursor_;
  RegexUse use_;
  int depth_ = 0;
};

// The tree of a whole text has no anchors and no lookahead.
ExprId ExprOf(const RegexTree& tree, RegexPool& pool) {
  std::vector<ExprId> parts;
  for (const RegexTree& part : tree.parts) {
    if (pool.size() > kGrammarExprsMax) break;
    parts.push_back(ExprOf(part, pool));
  }
  switch (tree.kind) {
    case RegexTree::Kind::kChars:
      return tree.negated ? pool.NoneOfCodePoints(tree.ranges) : pool.OneCodePoint(tree.ranges);
    case RegexTree::Kind::kSequence: return pool.Concat(parts);
    case RegexTree::Kind::kEither: return pool.Either(parts);
    case RegexTree::Kind::kRepeat:
      return parts.empty() ? RegexPool::kNothing : pool.Repeat(parts[0], tree.least, tree.most);
    case RegexTree::Kind::kBegin:
    case RegexTree::Kind::kEnd:
    case RegexTree::Kind::kAhead: break;
  }
  return RegexPool::kNothing;
}

}  // namespace

Result<RegexTree> ParseRegexTree(std::string_view text, RegexUse use) {
  if (text.size() > kRegexBytesMax) {
    return MakeError(ErrorCode::kInvalid, "regex: expected at most {} bytes, found {}",
                     kRegexBytesMax, text.size());
  }
  return RegexParser(text, use).Parse();
}

Result<ExprId> ParseRegex(std::string_view text, RegexPool& pool) {
  KVANT_ASSIGN(const RegexTree tree, ParseRegexTree(text, RegexUse::kWhole));
  const ExprId expr = ExprOf(tree, pool);
  if (pool.size() > kGrammarExprsMax) {
    return MakeError(ErrorCode::kInvalid, "regex: expected at most {} expressions, found more",
                     kGrammarExprsMax);
  }
  return expr;
}

}  // namespace kvant::grammar
