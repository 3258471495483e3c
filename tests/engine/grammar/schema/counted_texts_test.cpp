// Strings with a pattern and lengths, whose characters are counted while they are read: against all
// short texts, judged by PCRE2; and counts of a million, which take no state each.
#include <gtest/gtest.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/grammar/schema/pattern_set.h"
#include "tests/engine/grammar/schema/schema_judge.h"

namespace kvant::grammar {
namespace {

constexpr size_t kLettersMax = 6;  // of the texts that are tried

// All texts of up to six letters a and b in which PCRE2 finds the pattern.
std::set<std::string> TextsFound(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr),
      pcre2_code_free);
  EXPECT_NE(code, nullptr) << pattern;
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  std::set<std::string> found;
  for (size_t length = 0; length <= kLettersMax; ++length) {
    for (uint32_t number = 0; number < uint32_t{1} << length; ++number) {
      std::string text;
      for (size_t i = 0; i < length; ++i) text += (number >> i & 1) != 0 ? 'b' : 'a';
      const int matches = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                      text.size(), 0, 0, data.get(), nullptr);
      if (matches >= 0) found.insert(text);
    }
  }
  return found;
}

// Expects that the schema's strings are `texts`, and that each beginning leads to one of them.
void ExpectExactly(const std::string& schema, const std::set<std::string>& texts) {
  SchemaJudge judge(schema, {.compact = true});
  if (texts.empty()) {
    EXPECT_NE(judge.error(), "") << schema;
    return;
  }
  ASSERT_EQ(judge.error(), "") << schema;
  std::set<std::string> beginnings;
  for (const std::string& text : texts) {
    for (size_t length = 0; length <= text.size(); ++length) {
      beginnings.insert("\"" + text.substr(0, length));
    }
  }
  std::vector<uint64_t> bits(Matcher::WordsFor(judge.matcher().vocab()));
  for (const std::string& beginning : beginnings) {
    MatchState state = judge.matcher().Begin();
    ASSERT_TRUE(*judge.matcher().AdvanceBytes(state, beginning)) << schema << " " << beginning;
    ASSERT_TRUE(judge.matcher().Mask(state, bits).ok());
    const auto allows = [&](char byte) {
      const auto place = static_cast<size_t>(byte);
      return (bits[place / 64] >> (place % 64) & 1) != 0;
    };
    EXPECT_EQ(allows('"'), texts.contains(beginning.substr(1))) << schema << " " << beginning;
    for (const char letter : {'a', 'b'}) {
      EXPECT_EQ(allows(letter), beginnings.contains(beginning + letter))
          << schema << " " << beginning << letter;
    }
  }
}

TEST(CountedTexts, AreThoseOfThePatternAndTheLengths) {
  for (const std::string pattern : {"^[ab]*$", "^a+b*$", "^(ab|ba)+$", "^(aab|b)*$", "^a?b{1,4}$",
                                    "^(aaa|b)$", "^[ab]{2,5}$", "^(a|bb)+b$", "^(aaaa|b*)$"}) {
    const std::set<std::string> found = TextsFound(pattern);
    for (size_t least = 0; least <= 4; ++least) {
      for (size_t most = least; most <= kLettersMax; ++most) {
        std::set<std::string> texts;
        std::ranges::copy_if(found, std::inserter(texts, texts.end()), [&](const auto& text) {
          return text.size() >= least && text.size() <= most;
        });
        ExpectExactly(R"({"type": "string", "pattern": ")" + pattern + R"(", "minLength": )" +
                          std::to_string(least) + R"(, "maxLength": )" + std::to_string(most) + "}",
                      texts);
      }
    }
  }
}

// A number with one bound has at most 40 characters, or 20 more than its bound needs.
TEST(CountedTexts, NumbersAreShort) {
  SchemaJudge judge(R"({"type": "integer", "multipleOf": 7, "minimum": 0})");
  ASSERT_EQ(judge.error(), "");
  EXPECT_TRUE(judge.Accepts("7" + std::string(39, '0')));
  EXPECT_FALSE(judge.Accepts("7" + std::string(40, '0')));
  EXPECT_FALSE(judge.Accepts("8" + std::string(38, '0')));
}

// The lengths that LengthsOf tells, against a search for texts of each length.
TEST(TextLengths, AreThoseOfTexts) {
  int with_gaps = 0;
  for (const char* pattern : {"^a*$", "^(ab)*$", "^(ab|b)*$", "^a{3,7}$", "^(a|bbb)$", "^(a|bb)$",
                              "^(aa|bbb)*$", "^a{2}(b|aaa)?$", "a|^bb$", "^(a{1,3}|b{5})$"}) {
    const auto set = PatternSet(pattern);
    ASSERT_TRUE(set.ok());
    const TextLengths lengths = LengthsOf(*set);
    bool has_gap = false;
    for (uint32_t state = 0; state < set->states.size(); ++state) {
      std::set<uint32_t> here = {state};
      std::vector<uint32_t> found;
      for (uint32_t length = 0; length <= 40; ++length) {
        std::set<uint32_t> next;
        bool accepts = false;
        for (const uint32_t one : here) {
          accepts = accepts || set->states[one].accepts;
          for (const TextSet::Edge& edge : set->states[one].edges) next.insert(edge.target);
        }
        if (accepts) found.push_back(length);
        here = std::move(next);
      }
      const TextLengths::Range& range = lengths.ranges[state];
      ASSERT_FALSE(found.empty());
      EXPECT_EQ(range.least, found.front()) << pattern;
      EXPECT_EQ(range.most == UINT32_MAX, found.back() > 30) << pattern;
      if (range.most != UINT32_MAX) {
        EXPECT_EQ(range.most, found.back()) << pattern;
      }
      has_gap = has_gap || found.back() - found.front() + 1 != found.size();
    }
    EXPECT_EQ(lengths.are_all, !has_gap) << pattern;
    with_gaps += has_gap ? 1 : 0;
  }
  EXPECT_EQ(with_gaps, 5);
}

// Texts of a million characters, one more and one less; no character takes a state of its own.
TEST(FarCounts, AreExact) {
  const std::string million(1'000'000, 'a');
  const std::string limits = R"({"type": "string", "minLength": 999999, "maxLength": 1000000)";
  for (const std::string& schema :
       {limits + "}", limits + R"(, "pattern": "^[a-c]+$"})", limits + R"(, "pattern": "^b|a"})"}) {
    SchemaJudge judge(schema);
    ASSERT_EQ(judge.error(), "") << schema;
    EXPECT_TRUE(judge.Accepts("\"" + million + "\"")) << schema;
    EXPECT_TRUE(judge.Accepts("\"" + million.substr(1) + "\"")) << schema;
    EXPECT_FALSE(judge.Accepts("\"" + million + "a\"")) << schema;
    EXPECT_FALSE(judge.Accepts("\"" + million.substr(2) + "\"")) << schema;
    EXPECT_LT(judge.matcher().bytes().automata, size_t{4} << 20) << schema;
  }
  // Escapes are characters, too, and a text may be forked anywhere.
  SchemaJudge judge(R"({"type": "array", "items": {"anyOf": [
      {"type": "string", "maxLength": 30000},
      {"type": "string", "pattern": "^x.*$", "maxLength": 50000}]}})");
  ASSERT_EQ(judge.error(), "");
  std::string text;
  for (int i = 0; i < 15000; ++i) text += "\\u00e9\xC3\xA9";
  EXPECT_TRUE(judge.Accepts("[\"" + text + "\", \"x" + million.substr(0, 49999) + "\"]"));
  EXPECT_FALSE(judge.Accepts("[\"" + text + "\\n\"]"));
  EXPECT_FALSE(judge.Accepts("[\"x" + million.substr(0, 50000) + "\"]"));
}

// Whatever is left of far counts, a mask is what trying each token gives.
TEST(FarCounts, MasksKnowWhatIsLeft) {
  std::vector<std::string> tokens = {"",    "a",    "ab",   "aba", "\"",
                                     "a\"", "ab\"", "aaaa", "é",   "\xC3"};
  tokens.push_back(std::string(1000, 'a'));
  const auto trie = std::make_shared<const TokenTrie>(tokens);
  for (const char* more : {"", R"(, "pattern": "^[a-z]*$")", R"(, "minLength": 9998)"}) {
    auto built =
        ParseJsonSchema(R"({"type": "string", "maxLength": 10000)" + std::string(more) + "}", {});
    ASSERT_TRUE(built.ok());
    Matcher matcher(std::move(*built), trie, {0});
    for (const size_t length :
         {0, 1, 1279, 1280, 1281, 5000, 8999, 9000, 9001, 9997, 9998, 10000}) {
      MatchState state = matcher.Begin();
      ASSERT_TRUE(*matcher.AdvanceBytes(state, "\"" + std::string(length, 'a')));
      std::vector<uint64_t> bits(Matcher::WordsFor(trie->vocab()));
      ASSERT_TRUE(matcher.Mask(state, bits).ok());
      for (TokenId token = 1; token < static_cast<TokenId>(trie->vocab()); ++token) {
        MatchState tried = state;
        const bool moved = *matcher.Advance(tried, token);
        EXPECT_EQ((bits[0] >> token & 1) != 0, moved) << more << length << " token " << token;
        const std::string text = std::string(length, 'a') + tokens[static_cast<size_t>(token)];
        if (*more == '\0' && text.back() == 'a') {
          EXPECT_EQ(moved, text.size() <= 10000) << length;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvant::grammar
