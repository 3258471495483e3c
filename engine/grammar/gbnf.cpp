#include "engine/grammar/gbnf.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/schema/json_schema.h"
#include "engine/grammar/text_cursor.h"
#include "kvant/tokenizer.h"

namespace kvant::grammar {
namespace {

constexpr size_t kGbnfBytesMax = size_t{1} << 20;
constexpr size_t kGbnfRulesMax = 10000;
constexpr uint32_t kGbnfCodePointMax = 0x10ffff;

bool IsNameCharacter(uint32_t code) {
  return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') ||
         (code >= '0' && code <= '9') || code == '-' || code == '_';
}

class GbnfParser {
 public:
  GbnfParser(std::string_view text, const Tokenizer* tokenizer)
      : cursor_("grammar", text), tokenizer_(tokenizer) {}

  Result<std::unique_ptr<Grammar>> Parse() {
    KVANT_TRY(cursor_.CheckUtf8());
    SkipBlanks(Lines::kCrossed);
    while (!cursor_.at_end()) KVANT_TRY(ParseRule());
    for (const auto& [name, rule] : rules_) {
      if (rule.is_defined) continue;
      cursor_.Return(rule.first_use);
      return cursor_.At(fmt::format("expected a rule '{}', found none of this name", name));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) {
      return MakeError(ErrorCode::kInvalid, "grammar: expected a rule 'root', found none");
    }
    return builder_.Build(root->second.id);
  }

 private:
  using Part = GrammarBuilder::Part;
  enum class Lines : uint8_t { kKept, kCrossed };
  struct NamedRule {
    RuleId id;
    bool is_defined;
    size_t first_use;
  };

  // Blanks and comments.
  void SkipBlanks(Lines lines) {
    while (true) {
      const uint32_t code = cursor_.Peek();
      if (code == '#') {
        while (cursor_.Peek() != '\n' && !cursor_.at_end()) cursor_.Take();
      } else if (code == ' ' || code == '\t' ||
                 (lines == Lines::kCrossed && (code == '\n' || code == '\r'))) {
        cursor_.Take();
      } else {
        return;
      }
    }
  }

  Result<std::string> TakeName() {
    const size_t begin = cursor_.offset();
    while (IsNameCharacter(cursor_.Peek())) cursor_.Take();
    if (cursor_.offset() == begin) return cursor_.Expected("the name of a rule");
    return std::string(cursor_.Since(begin));
  }

  Result<NamedRule*> RuleNamed(const std::string& name, size_t offset) {
    const auto found = rules_.find(name);
    if (found != rules_.end()) return &found->second;
    if (rules_.size() == kGbnfRulesMax) {
      return cursor_.At(fmt::format("expected at most {} rules", kGbnfRulesMax));
    }
    return &rules_.emplace(name, NamedRule{builder_.AddRule(), false, offset}).first->second;
  }

  Status ParseRule() {
    const size_t begin = cursor_.offset();
    KVANT_ASSIGN(const std::string name, TakeName());
    KVANT_ASSIGN(NamedRule * rule, RuleNamed(name, begin));
    if (rule->is_defined) {
      cursor_.Return(begin);
      return cursor_.At(fmt::format("expected one rule '{}', found a second one", name));
    }
    rule->is_defined = true;
    SkipBlanks(Lines::kKept);
    if (!cursor_.TakeText("::=")) return cursor_.Expected("'::='");
    SkipBlanks(Lines::kCrossed);
    KVANT_ASSIGN(const Part part, ParseAlternatives(Lines::kKept));
    builder_.Define(rule->id, part);
    if (!cursor_.at_end() && cursor_.Peek() != '\n' && cursor_.Peek() != '\r') {
      return cursor_.Expected("an element of the rule or the end of the line");
    }
    SkipBlanks(Lines::kCrossed);
    return {};
  }

  // `lines`: whether a line's end is a blank here, as inside parentheses.
  Result<Part> ParseAlternatives(Lines lines) {
    if (++depth_ > kGrammarDepthMax) {
      return cursor_.At(fmt::format("expected at most {} nested groups", kGrammarDepthMax));
    }
    std::vector<Part> alternatives;
    do {
      if (!alternatives.empty()) SkipBlanks(Lines::kCrossed);
      KVANT_ASSIGN(const Part part, ParseSequence(lines));
      alternatives.push_back(part);
    } while (cursor_.TakeText("|"));
    --depth_;
    return builder_.Either(std::move(alternatives));
  }

  Result<Part> ParseSequence(Lines lines) {
    std::vector<Part> parts;
    while (true) {
      const uint32_t code = cursor_.Peek();
      const bool begins_element = code == '"' || code == '[' || code == '(' || code == '.' ||
                                  code == '<' || code == '!' || code == '%' ||
                                  IsNameCharacter(code);
      if (!begins_element) break;
      KVANT_ASSIGN(Part part, ParseElement());
      KVANT_ASSIGN(part, ParseCounts(part));
      parts.push_back(part);
      SkipBlanks(lines);
    }
    if (parts.empty()) return builder_.Regex(RegexPool::kEmpty);
    return builder_.Sequence(std::move(parts));
  }

  Result<Part> ParseElement() {
    switch (cursor_.Peek()) {
      case '"': return ParseText();
      case '[': return ParseClass();
      case '<':
      case '!': return ParseToken();
      case '%': return ParseJson();
      case '.': {
        cursor_.Take();
        const RegexPool::CodePoints all = {0, kGbnfCodePointMax};
        return builder_.Regex(builder_.pool().OneCodePoint({&all, 1}));
      }
      case '(': {
        cursor_.Take();
        SkipBlanks(Lines::kCrossed);
        KVANT_ASSIGN(const Part part, ParseAlternatives(Lines::kCrossed));
        if (!cursor_.TakeText(")")) return cursor_.Expected("')'");
        return part;
      }
      default: {
        const size_t begin = cursor_.offset();
        KVANT_ASSIGN(const std::string name, TakeName());
        KVANT_ASSIGN(const NamedRule* rule, RuleNamed(name, begin));
        return builder_.Rule(rule->id);
      }
    }
  }

  // * + ? {m} {m,} {m,n}, any number of them.
  Result<Part> ParseCounts(Part part) {
    for (int counts = 0;; ++counts) {
      const size_t begin = cursor_.offset();
      uint32_t least = 0;
      uint32_t most = kNoLimit;
      if (cursor_.TakeText("+")) {
        least = 1;
      } else if (cursor_.TakeText("?")) {
        most = 1;
      } else if (cursor_.TakeText("{")) {
        SkipBlanks(Lines::kKept);
        KVANT_ASSIGN(least, cursor_.TakeNumber(kGrammarRepeatMax));
        SkipBlanks(Lines::kKept);
        most = least;
        if (cursor_.TakeText(",")) {
          SkipBlanks(Lines::kKept);
          most = kNoLimit;
          if (cursor_.Peek() != '}') {
            KVANT_ASSIGN(most, cursor_.TakeNumber(kGrammarRepeatMax));
          }
          SkipBlanks(Lines::kKept);
        }
        if (!cursor_.TakeText("}")) return cursor_.Expected("'}'");
        if (most < least) {
          cursor_.Return(begin);
          return cursor_.At(fmt::format("expected counts in order, found {} to {}", least, most));
        }
      } else if (!cursor_.TakeText("*")) {
        return part;
      }
      if (counts == kGrammarDepthMax) {
        return cursor_.At(fmt::format("expected at most {} counts in a row", kGrammarDepthMax));
      }
      part = builder_.Repeat(part, least, most);
    }
  }

  // A character of a text or a class; `bytes`: \xXX below 0x80 or above is a code point, too.
  Result<uint32_t> TakeCharacter() {
    if (!cursor_.TakeText("\\")) {
      if (cursor_.at_end() || cursor_.Peek() == '\n') return cursor_.Expected("a character");
      return cursor_.Take();
    }
    const size_t begin = cursor_.offset();
    const uint32_t code = cursor_.Take();
    int digits = 0;
    switch (code) {
      case 'n': return uint32_t{'\n'};
      case 'r': return uint32_t{'\r'};
      case 't': return uint32_t{'\t'};
      case '\\':
      case '"':
      case '[':
      case ']': return code;
      case 'x': digits = 2; break;
      case 'u': digits = 4; break;
      case 'U': digits = 8; break;
      default:
        cursor_.Return(begin);
        return cursor_.Expected("one of the escapes n r t \\ \" [ ] x u U");
    }
    KVANT_ASSIGN(const uint32_t value, cursor_.TakeHex(digits));
    if (value > kGbnfCodePointMax || (value >= 0xd800 && value <= 0xdfff)) {
      cursor_.Return(begin);
      return cursor_.At(fmt::format("expected a Unicode character, found U+{:04X}", value));
    }
    return value;
  }

  Result<Part> ParseText() {
    cursor_.Take();
    std::vector<ExprId> parts;
    while (!cursor_.TakeText("\"")) {
      KVANT_ASSIGN(const uint32_t code, TakeCharacter());
      const RegexPool::CodePoints range = {code, code};
      parts.push_back(builder_.pool().OneCodePoint({&range, 1}));
    }
    return builder_.Regex(builder_.pool().Concat(parts));
  }

  Result<Part> ParseClass() {
    cursor_.Take();
    const bool negated = cursor_.TakeText("^");
    std::vector<RegexPool::CodePoints> ranges;
    while (!cursor_.TakeText("]")) {
      const size_t begin = cursor_.offset();
      KVANT_ASSIGN(const uint32_t first, TakeCharacter());
      uint32_t last = first;
      if (cursor_.StartsWith("-") && !cursor_.StartsWith("-]")) {
        cursor_.Take();
        KVANT_ASSIGN(last, TakeCharacter());
      }
      if (last < first) {
        cursor_.Return(begin);
        return cursor_.At("expected a range in order");
      }
      ranges.push_back({first, last});
    }
    RegexPool& pool = builder_.pool();
    return builder_.Regex(negated ? pool.NoneOfCodePoints(ranges) : pool.OneCodePoint(ranges));
  }

  // %json {...}: the JSON texts that satisfy a schema. %json-open: with unknown keywords in it.
  Result<Part> ParseJson() {
    const size_t begin = cursor_.offset();
    JsonSchemaForm form;
    form.allows_unknown = cursor_.TakeText("%json-open");
    if (!form.allows_unknown && !cursor_.TakeText("%json")) {
      return cursor_.Expected("%json or %json-open");
    }
    SkipBlanks(Lines::kKept);
    if (cursor_.Peek() != '{') return cursor_.Expected("a JSON schema in braces");
    const size_t schema = cursor_.offset();
    bool is_in_text = false;
    for (int depth = 0; depth > 0 || cursor_.offset() == schema;) {
      if (cursor_.at_end()) return cursor_.Expected("the end of the JSON schema");
      const uint32_t code = cursor_.Take();
      if (is_in_text && code == '\\' && !cursor_.at_end()) cursor_.Take();
      if (code == '"') is_in_text = !is_in_text;
      if (is_in_text) continue;
      depth += code == '{' ? 1 : code == '}' ? -1 : 0;
    }
    const auto rule = AddJsonSchema(builder_, cursor_.Since(schema), form);
    if (rule.ok()) return builder_.Rule(*rule);
    cursor_.Return(begin);
    return cursor_.At(rule.error().message);
  }

  // <[1000]>, <think>, !<think>
  Result<Part> ParseToken() {
    TokenSet set;
    set.negated = cursor_.TakeText("!");
    const size_t begin = cursor_.offset();
    if (!cursor_.TakeText("<")) return cursor_.Expected("'<' and a token");
    if (tokenizer_ == nullptr) {
      cursor_.Return(begin);
      return cursor_.At("expected no token, found one: there is no vocabulary");
    }
    if (cursor_.TakeText("[")) {
      const auto most = static_cast<uint32_t>(tokenizer_->vocab_size() - 1);
      KVANT_ASSIGN(const uint32_t id, cursor_.TakeNumber(most));
      if (!cursor_.TakeText("]>")) return cursor_.Expected("']>'");
      set.ids.push_back(static_cast<TokenId>(id));
      return builder_.Tokens(std::move(set));
    }
    while (!cursor_.TakeText(">")) {
      if (cursor_.at_end() || cursor_.Peek() == '\n') return cursor_.Expected("'>'");
      cursor_.Take();
    }
    const std::string name(cursor_.Since(begin));
    KVANT_ASSIGN(const auto ids, tokenizer_->Encode(name, {.parse_special = true}));
    if (ids.size() != 1) {
      cursor_.Return(begin);
      return cursor_.At(
          fmt::format("expected the text of one token, found '{}', which is {}", name, ids.size()));
    }
    set.ids = ids;
    return builder_.Tokens(std::move(set));
  }

  TextCursor cursor_;
  const Tokenizer* tokenizer_;
  GrammarBuilder builder_;
  std::map<std::string, NamedRule> rules_;
  int depth_ = 0;
};

}  // namespace

Result<std::unique_ptr<Grammar>> ParseGbnf(std::string_view text, const Tokenizer* tokenizer) {
  if (text.size() > kGbnfBytesMax) {
    return MakeError(ErrorCode::kInvalid, "grammar: expected at most {} bytes, found {}",
                     kGbnfBytesMax, text.size());
  }
  return GbnfParser(text, tokenizer).Parse();
}

}  // namespace kvant::grammar
