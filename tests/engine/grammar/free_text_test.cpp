// Thoughts and triggers before a grammar: masks are those of a judge that looks at whole texts.
#include "engine/grammar/free_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine/grammar/gbnf.h"
#include "engine/grammar/token_trie.h"

namespace kvant::grammar {
namespace {

// Tokens 0 and 1 are control tokens: the end, and one that is shown as "</t>".
const std::vector<std::string>& FreeVocabulary() {
  static const std::vector<std::string> texts = {
      "",       "",       "a",    "b",      "<",     "/",        "t",     ">",    "<t",
      "<t>",    "</t",    "</t>", "</t>a",  "</t>b", "</t>\n",   "t>\na", "\n",   " ",
      "\n\nab", "<t>a",   "a</t", "x</t>a", "ab",    "<c",       "c>",    "<c>a", "x<c>b",
      "<c>x",   "<c><c>", "x<c",  "c>b",    "x",     "</t><c>b", "<c>ab", "</t>x"};
  return texts;
}
constexpr TokenId kEnd = 0;
constexpr TokenId kNamed = 1;

std::string FreeTextOf(TokenId token) {
  return token == kNamed ? "</t>" : FreeVocabulary()[static_cast<size_t>(token)];
}

std::shared_ptr<BoundText> MakeBound(const std::string& gbnf, FreeTextOptions options) {
  auto grammar = ParseGbnf(gbnf, nullptr);
  EXPECT_TRUE(grammar.ok());
  auto matcher = std::make_shared<Matcher>(std::move(*grammar),
                                           std::make_shared<const TokenTrie>(FreeVocabulary()),
                                           std::vector<TokenId>{kEnd});
  auto made = BoundText::Create(std::move(matcher), {{kNamed, "</t>"}}, std::move(options));
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? *made : nullptr;
}

bool IsBeginningOfAny(const std::string& text, const std::vector<std::string>& wholes) {
  return std::ranges::any_of(wholes, [&](const auto& whole) { return whole.starts_with(text); });
}

// Whether a text may go on, by what it looks like as a whole, and whether it may end.
struct FreeVerdict {
  bool may_go_on;
  bool may_end;
};
using FreeJudge = std::function<FreeVerdict(const std::string& text)>;

// Behind a thought, some blanks may come before one of these.
FreeVerdict JudgeContent(std::string text, const std::vector<std::string>& wholes) {
  for (int blanks = 0; blanks <= 8; ++blanks) {
    if (IsBeginningOfAny(text, wholes)) return {true, std::ranges::count(wholes, text) > 0};
    if (text.empty() || (text[0] != ' ' && text[0] != '\n')) break;
    text.erase(0, 1);
  }
  return {text.empty(), false};
}

// A text from its first trigger on is one of these, which begin with the trigger.
FreeVerdict JudgeLazy(const std::string& text, const std::string& word,
                      const std::vector<std::string>& wholes) {
  const size_t at = text.find(word);
  if (at == std::string::npos) return {true, true};
  const std::string rest = text.substr(at);
  return {IsBeginningOfAny(rest, wholes), std::ranges::count(wholes, rest) > 0};
}

// Follows random texts and compares the mask of every place with the judge.
void CompareWithJudge(BoundText& bound, const FreeJudge& judge, uint32_t seed, int* refused) {
  std::mt19937 random(seed);
  std::vector<uint64_t> bits(Matcher::WordsFor(FreeVocabulary().size()));
  BoundState state = bound.Begin();
  std::string text;
  for (int step = 0; step < 12; ++step) {
    ASSERT_TRUE(bound.Mask(state, bits).ok());
    std::vector<TokenId> open;
    for (TokenId token = 0; token < std::ssize(FreeVocabulary()); ++token) {
      const bool allowed = (bits[0] >> token & 1) != 0;
      bool expected = judge(text).may_end;
      if (token != kEnd) expected = judge(text + FreeTextOf(token)).may_go_on;
      ASSERT_EQ(allowed, expected)
          << "'" << text << "' then '" << FreeTextOf(token) << "' " << token;
      if (allowed && token != kEnd) open.push_back(token);
      *refused += allowed ? 0 : 1;
      // The state says of each token what the mask says.
      BoundState copy = state;
      const auto moved = bound.Advance(copy, token);
      ASSERT_TRUE(moved.ok());
      ASSERT_EQ(*moved, allowed) << "'" << text << "' then '" << FreeTextOf(token) << "'";
    }
    if (open.empty()) return;
    const TokenId token = open[random() % open.size()];
    ASSERT_TRUE(*bound.Advance(state, token));
    text += FreeTextOf(token);
  }
}

const std::vector<std::string> kContents = {"a", "ab", "bx"};

TEST(FreeText, AThoughtThatThePromptHasOpened) {
  const auto bound =
      MakeBound("root ::= \"a\" | \"ab\" | \"bx\"", {.marks = {{"<t>", "</t>"}}, .opened = 0});
  const FreeJudge judge = [](const std::string& text) -> FreeVerdict {
    const size_t close = text.find("</t>");
    if (close == std::string::npos) return {true, false};
    return JudgeContent(text.substr(close + 4), kContents);
  };
  int refused = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) CompareWithJudge(*bound, judge, seed, &refused);
  EXPECT_GT(refused, 1000);
}

TEST(FreeText, AThoughtThatAnAnswerMayBeginWith) {
  for (const bool must_open : {false, true}) {
    const auto bound = MakeBound("root ::= \"a\" | \"ab\" | \"bx\"",
                                 {.marks = {{"<t>", "</t>"}}, .must_open = must_open});
    const FreeJudge judge = [must_open](const std::string& text) -> FreeVerdict {
      if (text.starts_with("<t>")) {
        const size_t close = text.find("</t>", 3);
        if (close == std::string::npos) return {true, false};
        return JudgeContent(text.substr(close + 4), kContents);
      }
      if (must_open) return {std::string("<t>").starts_with(text), false};
      const bool is_content = IsBeginningOfAny(text, kContents);
      return {is_content || std::string("<t>").starts_with(text),
              std::ranges::count(kContents, text) > 0};
    };
    int refused = 0;
    for (uint32_t seed = 1; seed <= 200; ++seed) CompareWithJudge(*bound, judge, seed, &refused);
    EXPECT_GT(refused, 1000);
  }
}

// A trigger inside a token, twice, never.
TEST(FreeText, ALazyGrammarBeginsWithItsTrigger) {
  const auto bound = MakeBound("root ::= \"<c>\" (\"a\" | \"b\") | \"<c><c>\" \"x\"",
                               {.waits = true, .words = {"<c>"}});
  const std::vector<std::string> calls = {"<c>a", "<c>b", "<c><c>x"};
  const FreeJudge judge = [&](const std::string& text) { return JudgeLazy(text, "<c>", calls); };
  int refused = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) CompareWithJudge(*bound, judge, seed, &refused);
  EXPECT_GT(refused, 1000);
}

TEST(FreeText, ALazyGrammarBehindAThought) {
  const auto bound = MakeBound("root ::= \"<c>\" (\"a\" | \"b\")",
                               {.marks = {{"<t>", "</t>"}}, .waits = true, .words = {"<c>"}});
  const std::vector<std::string> calls = {"<c>a", "<c>b"};
  const FreeJudge judge = [&](const std::string& text) -> FreeVerdict {
    if (!text.starts_with("<t>")) return JudgeLazy(text, "<c>", calls);
    const size_t close = text.find("</t>", 3);
    if (close == std::string::npos) return {true, false};
    return JudgeLazy(text.substr(close + 4), "<c>", calls);
  };
  int refused = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) CompareWithJudge(*bound, judge, seed, &refused);
  EXPECT_GT(refused, 300);
}

TEST(FreeText, ATokenIsATrigger) {
  const auto bound = MakeBound("root ::= \"a\" \"b\"", {.waits = true, .tokens = {kNamed}});
  BoundState state = bound->Begin();
  std::vector<uint64_t> bits(1);
  for (const TokenId token : {TokenId{3}, kNamed, TokenId{2}, TokenId{3}, kEnd}) {
    ASSERT_TRUE(bound->Mask(state, bits).ok());
    EXPECT_TRUE((bits[0] >> token & 1) != 0) << token;
    ASSERT_TRUE(*bound->Advance(state, token));
  }
  state = bound->Begin();
  ASSERT_TRUE(*bound->Advance(state, kNamed));
  EXPECT_FALSE(*bound->Advance(state, 3));
  EXPECT_FALSE(*bound->Advance(state, kEnd));
}

TEST(FreeText, RefusesTriggersThatCannotBegin) {
  auto grammar = ParseGbnf("root ::= \"ab\"", nullptr);
  auto matcher = std::make_shared<Matcher>(std::move(*grammar),
                                           std::make_shared<const TokenTrie>(FreeVocabulary()),
                                           std::vector<TokenId>{kEnd});
  for (const std::string word : {"b", ""}) {
    const auto made = BoundText::Create(matcher, {}, {.waits = true, .words = {word}});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().message,
              "triggers: expected words with which the grammar can begin, found '" + word + "'");
  }
  EXPECT_FALSE(BoundText::Create(matcher, {}, {.waits = true, .tokens = {99}}).ok());
  const std::string long_word(5000, 'a');
  EXPECT_FALSE(BoundText::Create(matcher, {}, {.waits = true, .words = {long_word}}).ok());
}

TEST(FreeText, KnowsWhatFollowsInAnyCase) {
  const auto bound = MakeBound("root ::= \"ab<t>x\" | \"ab<t>\" \"/\" \"b\"?", {});
  std::vector<TokenId> guess;
  bound->Guess(bound->Begin(), 9, Guesses::kAll, guess);
  std::string text;
  for (const TokenId token : guess) text += FreeTextOf(token);
  EXPECT_EQ(text, "ab<t>");
  EXPECT_EQ(guess.size(), 2u);
  std::vector<TokenId> sure;  // not "<t>", since there is "<t>a"
  bound->Guess(bound->Begin(), 9, Guesses::kSure, sure);
  ASSERT_EQ(sure.size(), 1u);
  EXPECT_EQ(FreeTextOf(sure[0]), "ab");
  BoundState state = bound->Begin();
  for (const TokenId token : guess) ASSERT_TRUE(*bound->Advance(state, token));
  EXPECT_FALSE(bound->IsOver(state));
  BoundState other = state;
  ASSERT_TRUE(*bound->Advance(state, 31));  // "x"
  EXPECT_TRUE(bound->IsOver(state));
  ASSERT_TRUE(*bound->Advance(other, 5));  // "/"
  EXPECT_FALSE(bound->IsOver(other));      // complete, and "b" may follow
}

TEST(WordSearch, FindsTheWordsOfPlainSearches) {
  const std::vector<std::string> words = {"aab", "ab", "b<b", "<ba", "aaaa"};
  const WordSearch search(words);
  std::mt19937 random(4);
  for (int round = 0; round < 500; ++round) {
    std::string text;
    WordSearch::State state = 0;
    for (int i = 0; i < 30; ++i) {
      text += "ab<"[random() % 3];
      state = search.Next(state, static_cast<uint8_t>(text.back()));
      int32_t longest = -1;
      for (size_t word = 0; word < words.size(); ++word) {
        if (!text.ends_with(words[word])) continue;
        if (longest < 0 || words[word].size() > words[static_cast<size_t>(longest)].size()) {
          longest = static_cast<int32_t>(word);
        }
      }
      ASSERT_EQ(search.WordAt(state), longest) << text;
    }
  }
}

}  // namespace
}  // namespace kvant::grammar
