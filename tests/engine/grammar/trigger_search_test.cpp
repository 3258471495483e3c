// Lazy grammars that begin with what a regular expression matches: masks are those of a judge that
// looks at whole texts with std::regex.
#include "engine/grammar/trigger_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "engine/grammar/free_text.h"
#include "engine/grammar/gbnf.h"

namespace kvant::grammar {
namespace {

// Token 0 is the end.
const std::vector<std::string>& TriggerVocabulary() {
  static const std::vector<std::string> texts = {
      "",     "a",  "b",   "c",    "<",   ">",    "1",      "2",    "\n",   "<a",
      "a1",   "1>", "<a1", "<b",   "2>x", "x",    "<a1>",   "a1>x", "x<b2", "<<a",
      "1>xx", "é",  "12",  "<b2>", ">x",  "<a12", "b<a1>x", "c\n",  "<c"};
  return texts;
}

std::shared_ptr<BoundText> LazyText(const std::string& gbnf, FreeTextOptions options) {
  auto grammar = ParseGbnf(gbnf, nullptr);
  EXPECT_TRUE(grammar.ok());
  auto matcher = std::make_shared<Matcher>(std::move(*grammar),
                                           std::make_shared<const TokenTrie>(TriggerVocabulary()),
                                           std::vector<TokenId>{0});
  options.waits = true;
  auto made = BoundText::Create(std::move(matcher), {}, std::move(options));
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? *made : nullptr;
}

// Where the grammar's text begins in a text, of which no beginning of up to `from` bytes has a
// match: where the first match begins, which is that with the first end, and of these the first
// one.
std::optional<size_t> BeginIn(const std::string& text, size_t from, const std::regex& regex) {
  for (size_t end = from + 1; end <= text.size(); ++end) {
    for (size_t begin = 0; begin < end; ++begin) {
      const auto at = [&](size_t i) { return text.begin() + static_cast<ptrdiff_t>(i); };
      if (std::regex_match(at(begin), at(end), regex)) return begin;
    }
  }
  return std::nullopt;
}

// As llama.cpp has it: the first beginning of the text that the pattern matches as a whole.
std::optional<size_t> BeginOfFull(const std::string& text, size_t from, const std::regex& regex) {
  for (size_t end = from + 1; end <= text.size(); ++end) {
    std::smatch match;
    const std::string whole = text.substr(0, end);
    if (!std::regex_match(whole, match, regex)) continue;
    return match.size() > 1 ? static_cast<size_t>(match.position(1)) : 0;
  }
  return std::nullopt;
}

// "<a1>x", with one of two letters, some digits and some x: what the grammar of the tests takes.
const char* const kCallGrammar = "root ::= \"<\" [ab] [12]+ \">\" \"x\"*";

bool IsBeginningOfCall(const std::string& text) {
  static const std::regex regex("(<([ab]([12]+(>x*)?)?)?)?");
  return std::regex_match(text, regex);
}
bool IsCall(const std::string& text) {
  static const std::regex regex("<[ab][12]+>x*");
  return std::regex_match(text, regex);
}

template <class Begin>
void CompareLazyText(BoundText& bound, const Begin& begin_in, int* bound_steps) {
  const std::vector<std::string>& texts = TriggerVocabulary();
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    std::mt19937 random(seed);
    BoundState state = bound.Begin();
    std::string text;
    std::optional<size_t> begun;
    for (int step = 0; step < 10; ++step) {
      std::vector<uint64_t> bits(Matcher::WordsFor(texts.size()));
      ASSERT_TRUE(bound.Mask(state, bits).ok());
      std::vector<TokenId> open;
      *bound_steps += begun.has_value() ? 1 : 0;
      for (TokenId token = 0; token < std::ssize(texts); ++token) {
        const std::string next = text + texts[static_cast<size_t>(token)];
        const auto begin = begun.has_value() ? begun : begin_in(next, text.size());
        bool expected = !begin.has_value() || IsBeginningOfCall(next.substr(*begin));
        if (token == 0) expected = !begun.has_value() || IsCall(text.substr(*begun));
        const bool allowed = (bits[0] >> token & 1) != 0;
        ASSERT_EQ(allowed, expected) << "'" << text << "' then '" << next << "'";
        BoundState copy = state;
        const auto moved = bound.Advance(copy, token);
        ASSERT_TRUE(moved.ok());
        ASSERT_EQ(*moved, allowed) << "'" << text << "' then '" << next << "'";
        if (allowed && token != 0) open.push_back(token);
      }
      if (open.empty()) break;
      const TokenId token = open[random() % open.size()];
      ASSERT_TRUE(*bound.Advance(state, token));
      const size_t before = text.size();
      text += texts[static_cast<size_t>(token)];
      if (!begun.has_value()) begun = begin_in(text, before);
    }
  }
}

TEST(TriggerSearch, PatternsAreFoundAnywhere) {
  // The grammar takes some of what the pattern matches, all of it, and what goes on within it.
  for (const std::string pattern : {"<[a-c][0-9]+>", "<[ab][12]", "<+[ab]1", "<[^\\n>]*>"}) {
    SCOPED_TRACE(pattern);
    const auto bound = LazyText(kCallGrammar, {.patterns = {pattern}});
    ASSERT_NE(bound, nullptr);
    int bound_steps = 0;
    const std::regex regex(pattern);
    CompareLazyText(
        *bound, [&](const std::string& text, size_t from) { return BeginIn(text, from, regex); },
        &bound_steps);
    EXPECT_GT(bound_steps, 20);
  }
}

TEST(TriggerSearch, FullPatternsBeginWithTheirGroup) {
  for (const std::string pattern :
       {"[^]*?(<[ab][12])[^]*", "(?:[a-c]|\\n)*(<[ab]1)", "<a1", "c*(<b)"}) {
    SCOPED_TRACE(pattern);
    std::string ours = pattern;  // [^] is ECMAScript's word for any character
    for (size_t at = 0; (at = ours.find("[^]", at)) != std::string::npos;) {
      ours.replace(at, 3, "[\\s\\S]");
    }
    const auto bound = LazyText(kCallGrammar, {.full_patterns = {ours}});
    ASSERT_NE(bound, nullptr);
    int bound_steps = 0;
    const std::regex regex(pattern);
    CompareLazyText(
        *bound,
        [&](const std::string& text, size_t from) { return BeginOfFull(text, from, regex); },
        &bound_steps);
    EXPECT_GT(bound_steps, 5);
  }
}

TEST(TriggerSearch, WordsAndPatternsTogether) {
  const auto bound = LazyText(kCallGrammar, {.words = {"<b2"}, .patterns = {"<a[0-9]"}});
  ASSERT_NE(bound, nullptr);
  int bound_steps = 0;
  const std::regex regex("<b2|<a[0-9]");
  CompareLazyText(
      *bound, [&](const std::string& text, size_t from) { return BeginIn(text, from, regex); },
      &bound_steps);
  EXPECT_GT(bound_steps, 20);
}

TEST(TriggerSearch, RefusesWhatIsNoTrigger) {
  struct Case {
    std::vector<std::string> patterns;
    std::vector<std::string> full;
    const char* message;
  };
  const Case cases[] = {
      {{"a("}, {}, "triggers: 'a(': regex: line 1, column 3: expected ')', found the end"},
      {{"a*"}, {}, "triggers: 'a*': expected an expression that no empty text matches"},
      {{}, {"((a)b)*"}, "triggers: '((a)b)*': expected an expression that no empty text"},
      {{}, {"a|(b)"}, "triggers: 'a|(b)': expected the first group outside"},
      {{}, {"(?:(a)b)"}, "triggers: '(?:(a)b)': expected the first group outside"},
      {{}, {"b(?=a)"}, "triggers: 'b(?=a)'"},
  };
  for (const Case& one : cases) {
    const auto made = TriggerSearch::Create({}, one.patterns, one.full);
    ASSERT_FALSE(made.ok()) << one.message;
    EXPECT_EQ(made.error().code, ErrorCode::kInvalid);
    EXPECT_NE(made.error().message.find(one.message), std::string::npos) << made.error().message;
  }
  EXPECT_TRUE(TriggerSearch::Create({}, {}, {"[(](a)"}).ok());
  EXPECT_TRUE(TriggerSearch::Create({}, {}, {"\\((?<name>a)"}).ok());
}

// Too many states are an error at the text that needs them.
TEST(TriggerSearch, TooManyStates) {
  const auto bound = LazyText(kCallGrammar, {.patterns = {"a[ab]{20}<"}});
  ASSERT_NE(bound, nullptr);
  BoundState state = bound->Begin();
  std::mt19937 random(2);
  std::string message;
  for (int i = 0; i < 20000 && message.empty(); ++i) {
    const auto moved = bound->Advance(state, random() % 2 == 0 ? 1 : 2);
    if (!moved.ok()) message = moved.error().message;
  }
  EXPECT_NE(message.find("triggers: expected patterns of at most 1000 states"), std::string::npos)
      << message;
}

}  // namespace
}  // namespace kvant::grammar
