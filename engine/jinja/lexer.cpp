#include "engine/jinja/lexer.h"

#include <algorithm>
#include <charconv>

#include "engine/jinja/text.h"
#include "engine/tokenizer/unicode.h"

namespace kvant::jinja {
namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "*",
                                           "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           "<",  ">",  "=",  ".",  ":",  "|",  ",", ";"};

std::string WithPlainLineEnds(std::string_view source) {
  std::string plain;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      plain += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      plain += '\n';
    }
  }
  return plain;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameByte(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// The escapes of Python's strings. Nothing but their value is left in `text`.
Status AppendEscape(std::string_view body, size_t* at, std::string& text) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"";
  constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
  const char c = body[++*at];
  ++*at;
  if (c == '\n') return {};
  if (const size_t letter = kLetters.find(c); letter != std::string_view::npos) {
    text += kMeanings[letter];
    return {};
  }
  size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  const bool octal = c >= '0' && c <= '7';
  if (octal) {
    --*at;
    while (digits < 3 && *at + digits < body.size() && body[*at + digits] >= '0' &&
           body[*at + digits] <= '7') {
      ++digits;
    }
  }
  if (digits == 0) {
    if (c == 'N') return MakeError(ErrorCode::kInvalid, "\\N in a string is not supported");
    text += '\\';
    text += c;
    return {};
  }
  uint32_t code = 0;
  const std::string_view number = body.substr(*at, digits);
  const auto [stop, error] =
      std::from_chars(number.data(), number.data() + number.size(), code, octal ? 8 : 16);
  if (error != std::errc() || stop != number.data() + digits || code > 0x10FFFF ||
      (code >= 0xD800 && code < 0xE000)) {
    return MakeError(ErrorCode::kInvalid, "a string has a broken escape \\{}", c);
  }
  *at += digits;
  AppendUtf8(code, text);
  return {};
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Status Run() {
    while (at_ < source_.size()) KVANT_TRY(Next());
    Add(TokenKind::kEnd, "");
    return {};
  }
  std::vector<Token> TakeTokens() { return std::move(tokens_); }
  int line() const { return line_; }

 private:
  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void MoveTo(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    if (end > at_) line_starts_ = source_[end - 1] == '\n';
    at_ = end;
  }
  bool Has(std::string_view text, size_t at) const {
    return std::string_view(source_).substr(at).starts_with(text);
  }
  size_t SkipSpace(size_t at) const {
    while (at < source_.size()) {
      const Utf8Char c = DecodeUtf8(std::string_view(source_).substr(at));
      if (!IsPythonSpace(c.code_point)) break;
      at += c.size;
    }
    return at;
  }
  size_t SkipLineEnd(size_t at) const { return Has("\n", at) ? at + 1 : at; }

  // The place of the next tag, or the end.
  size_t FindTag() const {
    size_t tag = source_.find('{', at_);
    while (tag != std::string::npos && !Has("{%", tag) && !Has("{{", tag) && !Has("{#", tag)) {
      tag = source_.find('{', tag + 1);
    }
    return std::min(tag, source_.size());
  }

  // Adds the data up to a tag, without the white space that the tag takes.
  void AddData(size_t end, char sign, bool is_variable) {
    std::string_view data = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      const Text stripped = StripText(Text(std::string(data)), Side::kRight);
      data = data.substr(0, stripped.size());
    } else if (sign != '+' && !is_variable) {
      const size_t line_begin = data.rfind('\n') + 1;
      const std::string_view last = data.substr(line_begin);
      if ((line_begin > 0 || line_starts_) && SkipSpace(at_ + line_begin) >= at_ + data.size() &&
          !last.empty()) {
        data = data.substr(0, line_begin);
      }
    }
    if (!data.empty()) Add(TokenKind::kData, std::string(data));
    MoveTo(end);
  }

  char SignAt(size_t at) const { return Has("-", at) || Has("+", at) ? source_[at] : ' '; }

  // The end of a tag's closing sign at `at`, or 0 if there is none: "-%}" and the white space
  // behind it, "+%}", or "%}" and a line end.
  size_t CloseAt(size_t at, std::string_view close) const {
    if (Has("-", at) && Has(close, at + 1)) return SkipSpace(at + 1 + close.size());
    if (close != "}}" && Has("+", at) && Has(close, at + 1)) return at + 1 + close.size();
    if (!Has(close, at)) return 0;
    return close == "}}" ? at + 2 : SkipLineEnd(at + close.size());
  }

  Status Next() {
    const size_t tag = FindTag();
    if (tag == source_.size()) {
      Add(TokenKind::kData, source_.substr(at_));
      MoveTo(tag);
      return {};
    }
    const char kind = source_[tag + 1];
    const char sign = SignAt(tag + 2);
    const size_t body = tag + (sign == ' ' ? 2 : 3);
    AddData(tag, sign, kind == '{');
    if (kind == '#') return SkipComment(body);
    if (kind == '%') {
      const size_t word = SkipSpace(body);
      if (Has("raw", word)) {
        const size_t close = SkipSpace(word + 3);
        if (Has("%}", close)) return TakeRaw(close + 2);
        if (Has("-%}", close)) return TakeRaw(SkipSpace(close + 3));
      }
    }
    Add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    MoveTo(body);
    return TakeTag(kind == '{' ? "}}" : "%}",
                   kind == '{' ? TokenKind::kVariableEnd : TokenKind::kBlockEnd);
  }

  Status SkipComment(size_t body) {
    for (size_t close = source_.find("#}", body); close != std::string::npos;) {
      const bool has_sign = close > body && SignAt(close - 1) != ' ';
      MoveTo(CloseAt(has_sign ? close - 1 : close, "#}"));
      return {};
    }
    if (body == source_.size()) {  // which jinja2 takes for an end
      MoveTo(body);
      return {};
    }
    return MakeError(ErrorCode::kInvalid, "a comment has no end");
  }

  Status TakeRaw(size_t body) {
    MoveTo(body);
    for (size_t tag = source_.find("{%", body); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = SignAt(tag + 2);
      const size_t word = SkipSpace(tag + (sign == ' ' ? 2 : 3));
      if (!Has("endraw", word)) continue;
      const size_t end = CloseAt(SkipSpace(word + 6), "%}");
      if (end == 0) continue;
      AddData(tag, sign, false);
      MoveTo(end);
      return {};
    }
    if (body == source_.size()) return {};
    return MakeError(ErrorCode::kInvalid, "a raw block has no end");
  }

  Status TakeTag(std::string_view close, TokenKind end_kind) {
    std::string open;  // brackets that are open
    while (at_ < source_.size()) {
      const size_t end = open.empty() ? CloseAt(at_, close) : 0;
      if (end != 0) {
        Add(end_kind, "");
        MoveTo(end);
        return {};
      }
      const size_t word = SkipSpace(at_);
      if (word > at_) {
        MoveTo(word);
        continue;
      }
      KVANT_TRY(TakeToken(open));
    }
    return {};  // the parser finds the end missing
  }

  Status TakeToken(std::string& open) {
    const char c = source_[at_];
    if (IsDigit(c) && TakeNumber()) return {};
    if (IsNameByte(c)) {
      size_t end = at_;
      while (end < source_.size() && IsNameByte(source_[end])) ++end;
      Add(TokenKind::kName, source_.substr(at_, end - at_));
      MoveTo(end);
      return {};
    }
    if (c == '\'' || c == '"') return TakeString(c);
    const auto* const sign = std::find_if(std::begin(kOperators), std::end(kOperators),
                                          [this](std::string_view text) { return Has(text, at_); });
    if (sign == std::end(kOperators)) {
      return MakeError(ErrorCode::kInvalid, "the character {:?} has no meaning here",
                       std::string_view(source_).substr(at_, 1));
    }
    KVANT_TRY(Balance(c, open));
    Add(TokenKind::kOperator, std::string(*sign));
    MoveTo(at_ + sign->size());
    return {};
  }

  static Status Balance(char c, std::string& open) {
    if (c == '{') open += '}';
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c != '}' && c != ')' && c != ']') return {};
    if (open.empty() || open.back() != c) {
      return MakeError(ErrorCode::kInvalid, "unexpected '{}'", c);
    }
    open.pop_back();
    return {};
  }

  bool TakeNumber() {
    std::string digits;
    size_t end = at_;
    const auto take_while = [&](auto matches) {
      while (end < source_.size() &&
             (matches(source_[end]) ||
              (source_[end] == '_' && end + 1 < source_.size() && matches(source_[end + 1])))) {
        if (source_[end] != '_') digits += source_[end];
        ++end;
      }
    };
    const char base = source_[at_] == '0' && at_ + 1 < source_.size()
                          ? static_cast<char>(source_[at_ + 1] | 0x20)
                          : ' ';
    if (base == 'x' || base == 'o' || base == 'b') {
      digits = {'0', base};
      end = at_ + 2;
      take_while([base](char c) {
        const bool hex = IsDigit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
        return base == 'x' ? hex : c >= '0' && c <= (base == 'o' ? '7' : '1');
      });
      if (digits.size() == 2) return false;
      Add(TokenKind::kInteger, digits);
      MoveTo(end);
      return true;
    }
    take_while(IsDigit);
    bool is_float = false;
    const bool behind_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!behind_dot && Has(".", end) && end + 1 < source_.size() && IsDigit(source_[end + 1])) {
      is_float = true;
      digits += '.';
      ++end;
      take_while(IsDigit);
    }
    if (!behind_dot && end < source_.size() && (source_[end] | 0x20) == 'e') {
      const size_t sign = end + (SignAt(end + 1) == ' ' ? 1 : 2);
      if (sign < source_.size() && IsDigit(source_[sign])) {
        is_float = true;
        digits += source_.substr(end, sign - end);
        end = sign;
        take_while(IsDigit);
      }
    }
    Add(is_float ? TokenKind::kFloat : TokenKind::kInteger, digits);
    MoveTo(end);
    return true;
  }

  Status TakeString(char quote) {
    std::string text;
    size_t at = at_ + 1;
    while (at < source_.size() && source_[at] != quote) {
      if (source_[at] != '\\') {
        text += source_[at++];
      } else if (at + 1 < source_.size()) {
        KVANT_TRY(AppendEscape(source_, &at, text));
      } else {
        at = source_.size();
      }
    }
    if (at >= source_.size()) return MakeError(ErrorCode::kInvalid, "a string has no end");
    Add(TokenKind::kString, std::move(text));
    MoveTo(at + 1);
    return {};
  }

  std::string source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // a line begins at at_
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source, int* line) {
  *line = 1;
  if (source.size() > kTemplateBytesMax) {
    return MakeError(ErrorCode::kInvalid, "a template has at most {} bytes, this one has {}",
                     kTemplateBytesMax, source.size());
  }
  if (!IsValidUtf8(source)) return MakeError(ErrorCode::kInvalid, "the template is not UTF-8");
  std::string plain = WithPlainLineEnds(source);
  if (plain.ends_with('\n')) plain.pop_back();
  Lexer lexer(std::move(plain));
  const Status status = lexer.Run();
  *line = lexer.line();
  if (!status.ok()) return status.error();
  return lexer.TakeTokens();
}

}  // namespace kvant::jinja
