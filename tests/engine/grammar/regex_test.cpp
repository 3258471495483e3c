// Regular expressions, against PCRE2: random ones, and what is refused.
#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/grammar/regex_syntax.h"

namespace kvant::grammar {
namespace {

class Pcre {
 public:
  explicit Pcre(const std::string& text) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    const std::string whole = "(?:" + text + ")";
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(),
                              PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOLLAR_ENDONLY,
                              &error, &offset, nullptr));
    data_.reset(pcre2_match_data_create(1, nullptr));
  }
  bool compiled() const { return code_ != nullptr; }
  bool Matches(const std::string& text) const {
    return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                       data_.get(), nullptr) >= 0;
  }

 private:
  struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  struct FreeData {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  std::unique_ptr<pcre2_code, FreeCode> code_;
  std::unique_ptr<pcre2_match_data, FreeData> data_;
};

bool Matches(RegexPool& pool, ExprId expr, const std::string& text) {
  for (const char byte : text) expr = pool.Derivative(expr, static_cast<uint8_t>(byte));
  return pool.AcceptsEmpty(expr);
}

class RandomRegex {
 public:
  explicit RandomRegex(uint32_t seed) : random_(seed) {}

  size_t Below(size_t bound) { return random_() % bound; }

  std::string Expr(int depth) {
    static const std::vector<std::string> kAtoms = {
        "a",   "b",     "é",     "€",       ".",     "[ab]",    "[^a]",  "\\d",
        "\\w", "\\s",   "[a-c]", "[^\\d_]", "\\x61", "\\u{e9}", "[é-ö]", "\\.",
        "\\W", "[\\s]", "\\n",   "(?:ab)",  "[]a]",  "[a-]",    "x",     "\\D"};
    if (depth == 0) return Atom(kAtoms[Below(kAtoms.size())]);
    switch (Below(5)) {
      case 0: return Expr(depth - 1) + Expr(depth - 1);
      case 1: return "(" + Expr(depth - 1) + "|" + Expr(depth - 1) + ")";
      case 2: return "(?:" + Expr(depth - 1) + ")" + Count();
      case 3: return Atom(kAtoms[Below(kAtoms.size())]) + Count();
      default: return Expr(depth - 1) + Atom(kAtoms[Below(kAtoms.size())]);
    }
  }

  std::string Text() {
    static const std::vector<std::string> kPieces = {"a",  "b", "é", "€", "c",  "1", " ", "_",
                                                     "\n", ".", "x", "ö", "😀", "-", "]"};
    std::string text;
    for (size_t length = Below(6); length > 0; --length) text += kPieces[Below(kPieces.size())];
    return text;
  }

 private:
  // \u{...} is ECMAScript's; PCRE2 writes \x{...}.
  static std::string Atom(const std::string& atom) { return atom; }
  std::string Count() {
    static const std::vector<std::string> kCounts = {"*",    "+",  "?",  "{2}",   "{0,2}",
                                                     "{1,}", "*?", "+?", "{3,4}", "{0}"};
    return kCounts[Below(kCounts.size())];
  }

  std::mt19937 random_;
};

std::string ForPcre(std::string text) {
  for (size_t at = 0; (at = text.find("\\u{", at)) != std::string::npos;) text[at + 1] = 'x';
  return text;
}

TEST(GrammarRegex, MatchesWhatPcreMatches) {
  int matched = 0;
  int compared = 0;
  for (uint32_t seed = 1; seed <= 600; ++seed) {
    RandomRegex random(seed);
    const std::string text = random.Expr(3);
    SCOPED_TRACE(text);
    const Pcre pcre(ForPcre(text));
    ASSERT_TRUE(pcre.compiled());
    RegexPool pool;
    const auto expr = ParseRegex(text, pool);
    ASSERT_TRUE(expr.ok()) << expr.error().message;
    for (int i = 0; i < 60; ++i) {
      const std::string candidate = random.Text();
      const bool expected = pcre.Matches(candidate);
      ASSERT_EQ(Matches(pool, *expr, candidate), expected) << "'" << candidate << "'";
      // No short text tells apart what differs in far counts only.
      const ExprId clamped = pool.Clamp(*expr, 32);
      ASSERT_EQ(Matches(pool, clamped, candidate), expected) << "'" << candidate << "'";
      matched += expected ? 1 : 0;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 36000);
  EXPECT_GT(matched, 2000);
}

TEST(GrammarRegex, RefusesWhatIsNotRegular) {
  struct Refused {
    const char* text;
    const char* message;
  };
  const Refused cases[] = {
      {"(a", "regex: line 1, column 3: expected ')', found the end"},
      {"a)", "regex: line 1, column 2: expected the end of the expression, found ')'"},
      {"(?=a)b", "lookaround"},
      {"(?<!a)b", "lookaround"},
      {"(?i)a", "flags"},
      {"(a)\\1", "regex: line 1, column 4: expected no backreference"},
      {"a\\bc", "behind the backslash"},
      {"\\p{L}", "behind the backslash"},
      {"a^b", "anchor"},
      {"(^a)", "anchor"},
      {"a$b", "anchor"},
      {"*a", "regex: line 1, column 1: expected something that is repeated, found '*'"},
      {"a**", "expected something that is repeated"},
      {"a++", "possessive"},
      {"{2}", "expected something that is repeated"},
      {"a{3,2}", "counts in order"},
      {"a{2001}", "expected a number up to 2000"},
      {"[b-a]", "regex: line 1, column 2: expected a range of characters in order"},
      {"[a", "expected ']'"},
      {"[[:alpha:]]", "POSIX"},
      {"\\", "behind the backslash"},
      {"\\x{110000}", "Unicode"},
      {"\\ud800", "Unicode"},
      {"a\xff", "regex: byte 1: expected UTF-8, found 0xff"},
  };
  for (const Refused& refused : cases) {
    RegexPool pool;
    const auto expr = ParseRegex(refused.text, pool);
    ASSERT_FALSE(expr.ok()) << refused.text;
    EXPECT_EQ(expr.error().code, ErrorCode::kInvalid);
    EXPECT_NE(expr.error().message.find(refused.message), std::string::npos)
        << refused.text << ": " << expr.error().message;
  }
  RegexPool pool;
  const std::string deep(100000, '(');
  EXPECT_FALSE(ParseRegex(deep, pool).ok());
  EXPECT_TRUE(ParseRegex("^ab$", pool).ok());
  EXPECT_TRUE(ParseRegex("^a$|^b$", pool).ok());
  EXPECT_TRUE(ParseRegex("a{b}", pool).ok());
}

}  // namespace
}  // namespace kvant::grammar
