// Cutting special tokens out of a text, against a search that looks at every place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/tokenizer/special_tokens.h"

namespace kvant {
namespace {

// Each fragment as text, special tokens in brackets.
std::vector<std::string> Show(const std::vector<TextFragment>& fragments) {
  std::vector<std::string> shown;
  for (const TextFragment& fragment : fragments) {
    const std::string text(fragment.text);
    shown.push_back(fragment.token == nullptr ? text : "[" + text + "]");
  }
  return shown;
}

std::vector<std::string> SplitNaively(const std::vector<SpecialToken>& tokens,
                                      std::string_view text) {
  std::vector<std::string> shown;
  std::string plain;
  for (size_t i = 0; i < text.size();) {
    std::string_view longest;
    for (const SpecialToken& token : tokens) {
      if (token.text.size() > longest.size() && text.substr(i).starts_with(token.text)) {
        longest = token.text;
      }
    }
    if (longest.empty()) {
      plain += text[i++];
      continue;
    }
    if (!plain.empty()) shown.push_back(plain);
    plain.clear();
    shown.push_back("[" + std::string(longest) + "]");
    i += longest.size();
  }
  if (!plain.empty()) shown.push_back(plain);
  return shown;
}

TEST(SpecialTokens, LeftmostLongestWins) {
  std::mt19937 random(3);
  const auto random_text = [&](size_t size) {
    std::string text;
    for (; size > 0; --size) text += static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> texts;
    for (size_t i = random() % 8; i > 0; --i) texts.push_back(random_text(random() % 7));
    std::vector<SpecialToken> tokens;
    for (const std::string& text : texts) tokens.push_back({.id = 0, .text = text});
    const SpecialTokenMatcher matcher(tokens);
    for (int i = 0; i < 10; ++i) {
      const std::string text = random_text(random() % 40);
      ASSERT_EQ(Show(matcher.Split(text)), SplitNaively(tokens, text)) << text;
    }
  }
}

TEST(SpecialTokens, TheFirstOfEqualsIsFound) {
  const SpecialTokenMatcher matcher({{.id = 4, .text = "<s>"}, {.id = 7, .text = "<s>"}});
  const auto fragments = matcher.Split("<s>");
  ASSERT_EQ(fragments.size(), 1U);
  EXPECT_EQ(fragments[0].token->id, 4);
}

TEST(SpecialTokens, StripWhiteSpaceWhereTheyAskForIt) {
  const SpecialTokenMatcher matcher({{.id = 0, .text = "<l>", .strip_left = true},
                                     {.id = 1, .text = "<r>", .strip_right = true}});
  EXPECT_THAT(Show(matcher.Split(" a\u3000 <l> b <r>\n\u2003 c ")),
              testing::ElementsAre(" a", "[<l>]", " b ", "[<r>]", "c "));
  EXPECT_THAT(Show(matcher.Split(" \u00A0<l><r> <l> <r> ")),
              testing::ElementsAre("[<l>]", "[<r>]", "[<l>]", " ", "[<r>]"));
  // A lone continuation byte is no white space.
  EXPECT_THAT(Show(matcher.Split("a\xA0<l>")), testing::ElementsAre("a\xA0", "[<l>]"));
}

// Comparing at every place would take 10^10 steps.
TEST(SpecialTokens, LongTokensTakeLinearTime) {
  const std::string almost(200000, 'a');
  const std::string token = almost + "b";
  const SpecialTokenMatcher matcher({{.id = 0, .text = token}});
  const std::string text = almost + almost;
  EXPECT_EQ(matcher.Split(text).size(), 1U);
  EXPECT_EQ(matcher.Split(text + "b").size(), 2U);
}

}  // namespace
}  // namespace kvant
