// Grammars of real use with their texts: arithmetic, JSON, lists, chess, Japanese, C. Recursion of
// every kind, and large grammars.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "engine/grammar/gbnf.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/schema/json_schema.h"

namespace kvant::grammar {
namespace {

constexpr TokenId kCheckEnd = 0;

// Bytes, and tokens of several; token 0 ends a text.
std::shared_ptr<const TokenTrie> CheckTrie() {
  static const auto trie = [] {
    std::vector<std::string> texts = {"",    "ab",  "aba", "ba",   "aa",       "1+", "+1",
                                      "\":", "{\"", "e4",  "日本", "\xe3\x81", "))", "int "};
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    return std::make_shared<const TokenTrie>(std::move(texts));
  }();
  return trie;
}

std::unique_ptr<Matcher> CheckMatcher(const std::string& gbnf) {
  auto grammar = ParseGbnf(gbnf, nullptr);
  EXPECT_TRUE(grammar.ok()) << grammar.error().message;
  if (!grammar.ok()) return nullptr;
  return std::make_unique<Matcher>(std::move(*grammar), CheckTrie(),
                                   std::vector<TokenId>{kCheckEnd});
}

bool MaskHas(Matcher& matcher, const MatchState& state, TokenId token) {
  std::vector<uint64_t> bits(Matcher::WordsFor(matcher.vocab()));
  EXPECT_TRUE(matcher.Mask(state, bits).ok());
  return (bits[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
}

// How far a text is followed byte by byte: its size if all of it is.
size_t FollowedBytes(Matcher& matcher, const std::string& text, bool* complete) {
  MatchState state = matcher.Begin();
  for (size_t i = 0; i < text.size(); ++i) {
    const auto moved = matcher.AdvanceBytes(state, std::string_view(text).substr(i, 1));
    EXPECT_TRUE(moved.ok());
    if (!moved.ok() || !*moved) return i;
  }
  *complete = state.accepts;
  return text.size();
}

// Spells the rest of a text in every way, and counts them. Where the whole text is complete, the
// end token may follow and nothing else need.
int64_t SpellEveryWay(Matcher& matcher, const MatchState& state, const std::string& left) {
  if (left.empty()) return MaskHas(matcher, state, kCheckEnd) ? 1 : 0;
  int64_t ways = 0;
  for (size_t length = 1; length <= left.size() && length <= 6; ++length) {
    for (TokenId token = 1; token < static_cast<TokenId>(matcher.vocab()); ++token) {
      if (matcher.trie().text(token) != left.substr(0, length)) continue;
      EXPECT_TRUE(MaskHas(matcher, state, token)) << left;
      MatchState next = state;
      const auto moved = matcher.Advance(next, token);
      EXPECT_TRUE(moved.ok() && *moved) << left;
      if (moved.ok() && *moved) ways += SpellEveryWay(matcher, next, left.substr(length));
    }
  }
  return ways;
}

// GRM-02: what is accepted can be spelled by any tokens, and what is refused goes wrong at the
// first byte that nothing can follow.
TEST(GrammarChecks, TextsAreSpelledInEveryWay) {
  const auto matcher = CheckMatcher("root ::= (\"ab\" | \"aba\" | \"b\")+ \".\"");
  ASSERT_NE(matcher, nullptr);
  // a b a b . with the tokens "ab", "aba", "ba": cut before every subset of places, as they allow.
  EXPECT_EQ(SpellEveryWay(*matcher, matcher->Begin(), "abab."), 6);
  bool complete = false;
  EXPECT_EQ(FollowedBytes(*matcher, "abaab.", &complete), 6u);
  EXPECT_TRUE(complete);
  EXPECT_EQ(FollowedBytes(*matcher, "abaaab.", &complete), 4u);
  EXPECT_EQ(FollowedBytes(*matcher, ".", &complete), 0u);
}

// GRM-03.
TEST(GrammarChecks, NothingFollowsTheEnd) {
  const auto matcher = CheckMatcher("root ::= \"ab\"+");
  ASSERT_NE(matcher, nullptr);
  MatchState state = matcher->Begin();
  EXPECT_FALSE(MaskHas(*matcher, state, kCheckEnd));
  ASSERT_TRUE(*matcher->AdvanceBytes(state, "ab"));
  EXPECT_TRUE(MaskHas(*matcher, state, kCheckEnd));
  ASSERT_TRUE(*matcher->Advance(state, kCheckEnd));
  for (TokenId token = 0; token < static_cast<TokenId>(matcher->vocab()); ++token) {
    EXPECT_FALSE(MaskHas(*matcher, state, token));
    EXPECT_FALSE(*matcher->Advance(state, token));
  }
}

struct RealGrammar {
  const char* name;
  const char* gbnf;
  std::vector<std::string> accepted;
  std::vector<std::string> refused;
};

// GRM-05: grammars of the kinds that llama.cpp's documentation has.
std::vector<RealGrammar> RealGrammars() {
  return {
      {"arithmetic",
       "root   ::= (sum \" = \" number \"\\n\")+\n"
       "sum    ::= term ([-+] term)*\n"
       "term   ::= factor ([*/] factor)*\n"
       "factor ::= number | name | \"(\" sum \")\"\n"
       "name   ::= [a-z] [a-z0-9_]*\n"
       "number ::= [0-9]+",
       {"1+2*x = 7\n", "(a_1-(2/3))*4 = 0\n1 = 1\n"},
       {"", "1+2*x = 7", "1+ = 2\n", "(1 = 2\n", "1 = x\n", "X = 1\n"}},
      {"JSON",
       R"GBNF(
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") blank
object ::= "{" blank (member ("," blank member)*)? "}" blank
member ::= string ":" blank value
array  ::= "[" blank (value ("," blank value)*)? "]" blank
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u00" [0-9a-fA-F]{2}))* "\"" blank
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,2})? blank
blank  ::= | " " | "\n" [ \t]{0,20}
)GBNF",
       {"{}", "{\"a\": [1, -2.5e+1, {\"b\":null}], \"\\u00e9\\n\": \"日本\"} "},
       {"", "[]", "{\"a\":}", "{\"a\": 01}", "{\"a\": \"\n\"}", "{\"a\": \"\\x\"}", "{,}"}},
      {"list",
       "root ::= item+\n"
       "item ::= \"- \" [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ \"\\n\"",
       {"- a\n", "- é and 日本\n- b\n"},
       {"", "a\n", "- \n", "- a", "- a\xe2\x80\xa8\n", "-a\n"}},
      {"chess",
       "root   ::= move{1}  (\" \" move)? \"\\n\" (([2-9] | [1-9] [0-9]) \". \" move \" \" move "
       "\"\\n\")*\n"
       "move   ::= (piece | pawn | castle) [+#]?\n"
       "piece  ::= [NBKQR] [a-h]? [1-8]? \"x\"? [a-h] [1-8]\n"
       "pawn   ::= ([a-h] \"x\")? [a-h] [1-8] (\"=\" [NBRQ])?\n"
       "castle ::= \"O-O\" \"-O\"?",
       {"e4 e5\n2. Nf3 Nc6\n", "Nbd2\n", "O-O-O exd8=Q#\n10. Qh4xe1+ Kg7\n"},
       {"", "e9\n", "e4 e5\n1. e4 e5\n", "O-O-O-O\n", "e4=Q", "ie4\n", "e4  e5\n"}},
      {"Japanese",
       "root  ::= word+ ([ \\t\\n] word+)*\n"
       "word  ::= kana | kanji | mark\n"
       "kana  ::= [ぁ-ゟァ-ヿ]\n"
       "kanji ::= [一-鿿]\n"
       "mark  ::= [、-〾！-～]",
       {"日本語", "こんにちは、世界！", "カタカナ 漢字"},
       {"", "abc", "日本a", " 日本", "日本  語", "日\xe6\x9c"}},
      {"C",
       R"GBNF(
root  ::= (kind name "(" (kind name ("," " " kind name)*)? ")" blanks "{" blanks line* "}")*
kind  ::= ("int" | "float" | "char") " "
name  ::= [a-zA-Z_] [a-zA-Z_0-9]*
line  ::= (kind name blanks "=" blanks sum ";" | name blanks "=" blanks sum ";" |
           name "(" (sum ("," " " sum)*)? ")" ";" | "return" " " sum ";" |
           "while" "(" test ")" "{" blanks line* "}" |
           "if" blanks "(" test ")" blanks "{" blanks line* "}"
           (blanks "else" blanks "{" blanks line* "}")? | "//" [^\n]* "\n") blanks
test  ::= sum blanks ("<=" | "<" | "==" | "!=" | ">=" | ">") blanks sum
sum   ::= term blanks (("+" | "-") blanks term)*
term  ::= unit (("*" | "/") unit)*
unit  ::= name | "-" unit | [0-9]+ | "(" sum ")" | name "(" (sum ("," " " sum)*)? ")"
blanks ::= [ \t\n]*
)GBNF",
       {"", "int f(int a, char b) {\n  // no more\n  int c = a*2 + g(b, 1);\n  return c;\n}",
        "float f() { while(i <= -3){i = i + 1;} if (a == b) { f(); } else { } }"},
       {"int f()", "int f() { return; }", "double f() {}", "int f() { while(1){} }",
        "int f(int a,int b) {}", "int 1f() {}"}},
  };
}

TEST(GrammarChecks, GrammarsOfRealUse) {
  for (const RealGrammar& real : RealGrammars()) {
    SCOPED_TRACE(real.name);
    const auto matcher = CheckMatcher(real.gbnf);
    ASSERT_NE(matcher, nullptr);
    for (const std::string& text : real.accepted) {
      bool complete = false;
      EXPECT_EQ(FollowedBytes(*matcher, text, &complete), text.size()) << text;
      EXPECT_TRUE(complete) << text;
    }
    for (const std::string& text : real.refused) {
      bool complete = false;
      const bool is_whole = FollowedBytes(*matcher, text, &complete) == text.size();
      EXPECT_FALSE(is_whole && complete) << text;
    }
  }
}

// Texts of random tokens stay within the grammar, and JSON is JSON.
TEST(GrammarChecks, GrammarsOfRealUseGenerate) {
  for (const RealGrammar& real : RealGrammars()) {
    SCOPED_TRACE(real.name);
    const auto matcher = CheckMatcher(real.gbnf);
    const auto judge = CheckMatcher(real.gbnf);
    ASSERT_NE(matcher, nullptr);
    std::mt19937 random(3);
    int ended = 0;
    for (int round = 0; round < 40; ++round) {
      MatchState state = matcher->Begin();
      std::vector<uint64_t> bits(Matcher::WordsFor(matcher->vocab()));
      std::string text;
      while (text.size() < 300 && !state.has_ended) {
        ASSERT_TRUE(matcher->Mask(state, bits).ok());
        std::vector<TokenId> allowed;
        for (TokenId token = 0; token < static_cast<TokenId>(matcher->vocab()); ++token) {
          const auto place = static_cast<size_t>(token);
          if ((bits[place / 64] >> (place % 64) & 1) != 0) allowed.push_back(token);
        }
        ASSERT_FALSE(allowed.empty()) << text;
        TokenId token = allowed[random() % allowed.size()];
        if (allowed[0] == kCheckEnd && random() % 2 == 0) token = kCheckEnd;
        ASSERT_TRUE(*matcher->Advance(state, token));
        text += matcher->trie().text(token);
      }
      bool complete = false;
      EXPECT_EQ(FollowedBytes(*judge, text, &complete), text.size()) << text;
      if (!state.has_ended) continue;
      ++ended;
      EXPECT_TRUE(complete) << text;
      if (real.name == std::string("JSON")) {
        EXPECT_TRUE(nlohmann::json::accept(text)) << text;
      }
    }
    EXPECT_GT(ended, 3);
  }
}

// GRM-10: a schema that refers to itself, and rules that are empty, ambiguous or begin with
// themselves.
TEST(GrammarChecks, RecursionOfEveryKind) {
  auto built = ParseJsonSchema(
      R"({"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": false})",
      {.compact = true});
  ASSERT_TRUE(built.ok()) << built.error().message;
  Matcher deep(std::move(*built), CheckTrie(), {kCheckEnd});
  std::string nested;
  for (int i = 0; i < 1000; ++i) nested += "{\"next\":";
  nested += "{}" + std::string(1000, '}');
  bool complete = false;
  EXPECT_EQ(FollowedBytes(deep, nested, &complete), nested.size());
  EXPECT_TRUE(complete);
  EXPECT_EQ(FollowedBytes(deep, nested + "}", &complete), nested.size());

  // Each grammar beside a plain judge of its texts.
  struct Case {
    const char* gbnf;
    bool (*accepts)(const std::string& text);
  };
  const Case cases[] = {
      // On the left, through another rule that may be empty, and in every way at once.
      {"root ::= root \"a\" | \"b\"",
       [](const std::string& text) {
         return !text.empty() && text[0] == 'b' &&
                text.find_first_not_of('a', 1) == std::string::npos;
       }},
      {"root ::= x root \"a\" | \"b\"\nx ::= \"\" | \"a\" x",
       [](const std::string& text) {
         // As many at the end as rounds, and any number before: one at the end for any before.
         const size_t b = text.find('b');
         return b != std::string::npos && text.find('b', b + 1) == std::string::npos &&
                (b == 0 || b + 1 < text.size());
       }},
      {"root ::= root root | \"a\" | \"\"",
       [](const std::string& text) { return text.find('b') == std::string::npos; }},
      {"root ::= x x x\nx ::= \"a\"? \"b\"?",
       [](const std::string& text) {
         size_t used = 0;
         for (size_t i = 0; i < text.size(); ++used) i += text.compare(i, 2, "ab") == 0 ? 2 : 1;
         return used <= 3;
       }},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.gbnf);
    const auto matcher = CheckMatcher(one.gbnf);
    ASSERT_NE(matcher, nullptr);
    for (uint32_t number = 0; number < 256; ++number) {
      for (size_t length = 0; length <= 8; ++length) {
        std::string word;
        for (size_t i = 0; i < length; ++i) word += (number >> i & 1) != 0 ? 'b' : 'a';
        bool is_complete = false;
        const bool is_whole = FollowedBytes(*matcher, word, &is_complete) == length;
        EXPECT_EQ(is_whole && is_complete, one.accepts(word)) << word;
      }
    }
  }
}

// GRM-11: large counts, lengths and lists. bench/results/constrained.md has their times.
TEST(GrammarChecks, LargeCounts) {
  const auto counted = CheckMatcher("root ::= \"ab\"{1,2000}");
  ASSERT_NE(counted, nullptr);
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "ab";
  bool complete = false;
  EXPECT_EQ(FollowedBytes(*counted, text, &complete), 4000u);
  EXPECT_TRUE(complete);
  EXPECT_EQ(FollowedBytes(*counted, text + "a", &complete), 4000u);

  auto built = ParseJsonSchema(R"({"type": "string", "maxLength": 1000000})", {});
  ASSERT_TRUE(built.ok()) << built.error().message;
  Matcher longest(std::move(*built), CheckTrie(), {kCheckEnd});
  MatchState state = longest.Begin();
  ASSERT_TRUE(*longest.AdvanceBytes(state, "\"" + std::string(50000, 'a')));
  EXPECT_TRUE(MaskHas(longest, state, 1));
  EXPECT_TRUE(*longest.AdvanceBytes(state, "\""));
  EXPECT_TRUE(state.accepts);

  auto exact = ParseJsonSchema(R"({"type": "string", "maxLength": 3})", {});
  ASSERT_TRUE(exact.ok());
  Matcher shortest(std::move(*exact), CheckTrie(), {kCheckEnd});
  state = shortest.Begin();
  ASSERT_TRUE(*shortest.AdvanceBytes(state, "\"a"));
  EXPECT_TRUE(MaskHas(shortest, state, 1));   // "ab"
  EXPECT_FALSE(MaskHas(shortest, state, 2));  // "aba"
}

// GRM-12: grammars of 64 KiB, and what nests deeply or takes too many states, are read or refused;
// none of them hangs.
TEST(GrammarChecks, LargeGrammars) {
  std::string many = "root ::= r0\n";
  for (int i = 0; many.size() < 65536; ++i) {
    many += "r" + std::to_string(i) + " ::= \"a\" r" + std::to_string(i + 1) + " | \"b\"\n";
    if (many.size() >= 65536) many += "r" + std::to_string(i + 1) + " ::= \"c\"\n";
  }
  const auto chain = CheckMatcher(many);
  ASSERT_NE(chain, nullptr);
  bool complete = false;
  EXPECT_EQ(FollowedBytes(*chain, std::string(1000, 'a') + "b", &complete), 1001u);
  EXPECT_TRUE(complete);

  const std::string deep = "root ::= " + std::string(100, '(') + "\"a\"" + std::string(100, ')');
  EXPECT_NE(CheckMatcher(deep), nullptr);
  const std::string deeper = "root ::= " + std::string(201, '(') + "\"a\"" + std::string(201, ')');
  EXPECT_FALSE(ParseGbnf(deeper, nullptr).ok());

  // A million places: each count is allowed, their product is not.
  const auto product = ParseGbnf("root ::= ((x{100}){100}){100}\nx ::= \"a\" x | \"b\"", nullptr);
  ASSERT_TRUE(product.ok()) << product.error().message;
  const auto places = ParseGbnf(
      "root ::= x{2000} x{2000} y{1000} y{1000}\n"
      "x ::= y{1000} \"a\"\ny ::= \"a\" y \"c\" | \"b\"",
      nullptr);
  ASSERT_TRUE(places.ok()) << places.error().message;
  std::string wide = "root ::= ";
  for (int i = 0; i < 600; ++i) wide += " (y | \"d\"){2000}";
  const auto refused = ParseGbnf(wide + "\ny ::= \"a\" y \"c\" | \"b\"", nullptr);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("expected at most 1000000 places"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace kvant::grammar
