// GBNF: what is understood, and errors that say where.
#include "engine/grammar/gbnf.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/grammar/matcher.h"
#include "kvant/model.h"
#include "tests/shared_data.h"

namespace kvant::grammar {
namespace {

// One token for each byte; token 256 ends a text.
std::vector<std::string> ByteTexts() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  texts.emplace_back();
  return texts;
}

enum class GbnfVerdict { kRefused, kBegins, kComplete };

GbnfVerdict JudgeGbnf(const std::string& gbnf, const std::string& text) {
  auto grammar = ParseGbnf(gbnf, nullptr);
  EXPECT_TRUE(grammar.ok()) << grammar.error().message;
  Matcher matcher(std::move(*grammar), std::make_shared<const TokenTrie>(ByteTexts()), {256});
  MatchState state = matcher.Begin();
  const auto moved = matcher.AdvanceBytes(state, text);
  EXPECT_TRUE(moved.ok());
  if (!moved.ok() || !*moved) return GbnfVerdict::kRefused;
  return state.accepts ? GbnfVerdict::kComplete : GbnfVerdict::kBegins;
}

TEST(Gbnf, UnderstandsItsElements) {
  struct Case {
    const char* grammar;
    const char* text;
    GbnfVerdict verdict;
  };
  const Case cases[] = {
      {"root ::= \"a\\n\\t\\\\\\\"\\x41\\u00e9\\U0001F600\"", "a\n\t\\\"Aé😀",
       GbnfVerdict::kComplete},
      {"root ::= [a-c0-9_]+", "b7_", GbnfVerdict::kComplete},
      {"root ::= [^a-c]", "b", GbnfVerdict::kRefused},
      {"root ::= [^a-c]", "€", GbnfVerdict::kComplete},
      {"root ::= [^a-c]", "\xe2\x82", GbnfVerdict::kBegins},
      {"root ::= [^a]", "\xc0\xaf", GbnfVerdict::kRefused},      // not UTF-8
      {"root ::= [^a]", "\xed\xa0\x80", GbnfVerdict::kRefused},  // a surrogate
      {"root ::= .", "\n", GbnfVerdict::kComplete},
      {"root ::= [a-]", "-", GbnfVerdict::kComplete},
      {"root ::= [\\]\\[]", "]", GbnfVerdict::kComplete},
      {"root ::= \"a\"{2}", "aa", GbnfVerdict::kComplete},
      {"root ::= \"a\"{2,}", "a", GbnfVerdict::kBegins},
      {"root ::= \"a\"{2,3}", "aaaa", GbnfVerdict::kRefused},
      {"root ::= \"a\"{0,2000}", "aaaaa", GbnfVerdict::kComplete},
      {"root ::= (\"a\" | \"b\"\n  | \"c\")*", "abc", GbnfVerdict::kComplete},
      {"root ::= x |\n  \"b\"  # a comment\n# another\nx ::= \"a\"", "b", GbnfVerdict::kComplete},
      {"root ::= \"\"", "", GbnfVerdict::kComplete},
      {"root ::=\n  \"a\"", "a", GbnfVerdict::kComplete},
      {"x ::= \"a\"\r\nroot ::= x\r\n", "a", GbnfVerdict::kComplete},
      // Recursion of every kind.
      {"root ::= root \"a\" | \"b\"", "baaa", GbnfVerdict::kComplete},
      {"root ::= \"a\" root | \"\"", "aaa", GbnfVerdict::kComplete},
      {"root ::= \"(\" root \")\" root | \"\"", "(()())()", GbnfVerdict::kComplete},
      {"root ::= \"(\" root \")\" root | \"\"", "(()", GbnfVerdict::kBegins},
      {"root ::= \"(\" root \")\" root | \"\"", "())", GbnfVerdict::kRefused},
      {"root ::= x x\nx ::= y | \"a\"\ny ::= x | \"\"", "a", GbnfVerdict::kComplete},
      {"root ::= root root | \"a\"", "aaaa", GbnfVerdict::kComplete},
      // A rule that never ends is as if it were not there.
      {"root ::= \"a\" x | \"ab\"\nx ::= \"b\" x", "ab", GbnfVerdict::kComplete},
      {"root ::= \"a\" x | \"ac\"\nx ::= \"b\" x", "ab", GbnfVerdict::kRefused},
      {"root ::= \"a\" [] | \"b\"", "a", GbnfVerdict::kRefused},
  };
  for (const Case& one : cases) {
    EXPECT_EQ(JudgeGbnf(one.grammar, one.text), one.verdict) << one.grammar << " of " << one.text;
  }
}

TEST(Gbnf, NestsDeep) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "(";
  for (int i = 0; i < 1000; ++i) text += ")";
  EXPECT_EQ(JudgeGbnf("root ::= \"(\" root? \")\"", text), GbnfVerdict::kComplete);
  EXPECT_EQ(JudgeGbnf("root ::= \"(\" root? \")\"", text + ")"), GbnfVerdict::kRefused);
}

// A grammar whose automaton has too many states says so, before it takes much memory.
TEST(Gbnf, TooManyStatesAreAnError) {
  auto grammar = ParseGbnf("root ::= [ab]* \"a\" [ab]{1000} \"c\"", nullptr);
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  Matcher matcher(std::move(*grammar), std::make_shared<const TokenTrie>(ByteTexts()), {256});
  MatchState state = matcher.Begin();
  uint32_t random = 1;
  std::string message;
  for (int i = 0; i < 40000 && message.empty(); ++i) {
    random = random * 1664525 + 1013904223;
    const auto moved = matcher.AdvanceBytes(state, (random >> 31) != 0 ? "a" : "b");
    if (!moved.ok()) message = moved.error().message;
  }
  EXPECT_NE(message.find("grammar: expected at most 100000 states"), std::string::npos) << message;
}

TEST(Gbnf, ErrorsSayWhere) {
  struct Case {
    std::string grammar;
    const char* message;
  };
  const Case cases[] = {
      {"", "grammar: expected a rule 'root', found none"},
      {"a ::= \"b\"", "grammar: expected a rule 'root', found none"},
      {"root ::= a", "grammar: line 1, column 10: expected a rule 'a', found none of this name"},
      {"root ::= \"a\"\nroot ::= \"b\"", "grammar: line 2, column 1: expected one rule 'root'"},
      {"root = \"a\"", "grammar: line 1, column 6: expected '::=', found '='"},
      {"root ::= \"a", "grammar: line 1, column 12: expected a character, found the end"},
      {"root ::= \"a\n\"", "column 12: expected a character, found the end of the line"},
      {"root ::= [a", "expected a character, found the end"},
      {"root ::= [b-a]", "grammar: line 1, column 11: expected a range in order"},
      {"root ::= (\"a\"", "expected ')', found the end"},
      {"root ::= \"a\")", "grammar: line 1, column 13: expected an element of the rule"},
      {"root ::= \"\\q\"", "expected one of the escapes"},
      {"root ::= \"\\x4\"", "expected 2 hexadecimal digits"},
      {"root ::= \"\\uD800\"", "expected a Unicode character, found U+D800"},
      {"root ::= \"a\"{3,2}", "expected counts in order, found 3 to 2"},
      {"root ::= \"a\"{2001}", "expected a number up to 2000"},
      {"root ::= \"a\"{x}", "expected a number, found 'x'"},
      {"root ::= * \"a\"", "expected an element of the rule"},
      {"root ::= root", "expected a text that the root can become, found none"},
      {"root ::= \"a\" root", "expected a text that the root can become, found none"},
      {"root ::= <think>", "there is no vocabulary"},
      {"root ::= \"\xff\"", "grammar: byte 10: expected UTF-8, found 0xff"},
      {"root ::= " + std::string(100000, '('), "expected at most 200 nested groups"},
  };
  for (const Case& one : cases) {
    const auto grammar = ParseGbnf(one.grammar, nullptr);
    ASSERT_FALSE(grammar.ok()) << one.grammar.substr(0, 60);
    EXPECT_EQ(grammar.error().code, ErrorCode::kInvalid);
    EXPECT_NE(grammar.error().message.find(one.message), std::string::npos)
        << grammar.error().message;
  }
}

TEST(Gbnf, TakesTokensByTheirTextAndNumber) {
  const auto model = Model::Open(test::SourcePath("models/shakespeare/shakespeare.gguf"));
  ASSERT_TRUE(model.ok());
  const Tokenizer& tokenizer = (*model)->tokenizer();
  const auto vocab = static_cast<size_t>(tokenizer.vocab_size());
  auto grammar = ParseGbnf("root ::= <[7]> !<[8]> \"x\"", &tokenizer);
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  const auto ends = tokenizer.special().end_of_generation;
  Matcher matcher(std::move(*grammar), tokenizer.trie(), ends);
  std::vector<uint64_t> bits(Matcher::WordsFor(vocab));
  MatchState state = matcher.Begin();
  const auto count = [&] {
    EXPECT_TRUE(matcher.Mask(state, bits).ok());
    int sum = 0;
    for (const uint64_t word : bits) sum += std::popcount(word);
    return static_cast<size_t>(sum);
  };
  EXPECT_EQ(count(), 1u);
  EXPECT_FALSE(*matcher.Advance(state, 8));
  EXPECT_TRUE(*matcher.Advance(state, 7));
  EXPECT_EQ(count(), vocab - 1 - ends.size());
  EXPECT_FALSE(*matcher.Advance(state, 8));
  EXPECT_TRUE(*matcher.Advance(state, 9));
  EXPECT_TRUE(*matcher.AdvanceBytes(state, "x"));
  EXPECT_EQ(count(), ends.size());
  const auto beyond = ParseGbnf("root ::= <[1000000]>", &tokenizer);
  EXPECT_FALSE(beyond.ok());
  EXPECT_FALSE(ParseGbnf("root ::= <no such token at all>", &tokenizer).ok());
}

}  // namespace
}  // namespace kvant::grammar
