// Masks of vocabularies with long tokens, against a trial of every token: what one walk takes from
// another one must be what it would have found.
#include "engine/grammar/tree_walk.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/grammar/matcher.h"
#include "engine/grammar/schema/json_schema.h"

namespace kvant::grammar {
namespace {

// Tokens of letters, marks of JSON and characters of several bytes; a few are very long.
std::vector<std::string> RandomTokens(std::mt19937& random) {
  const std::vector<std::string> parts = {"a", "e", "n", "t",  "x",  "na", "\"", "\":", "\",",
                                          ":", " ", ",", "\n", "\\", "é",  "0",  "7",   "}"};
  std::vector<std::string> texts = {""};
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (int i = 0; i < 1500; ++i) {
    std::string text;
    const size_t length = i % 50 == 0 ? 40 : 1 + random() % 9;
    while (text.size() < length) text += parts[random() % (i % 3 == 0 ? parts.size() : 6)];
    texts.push_back(text);
  }
  return texts;
}

TEST(TreeWalk, MasksAreThoseOfEveryToken) {
  std::mt19937 random(11);
  const auto trie = std::make_shared<const TokenTrie>(RandomTokens(random));
  for (const char* schema :
       {R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 30},
            "tea": {"type": "number"},
            "na": {"enum": ["x", "eat", "neat"]}},
            "additionalProperties": {"type": "string", "minLength": 2}})",
        R"({"type": "array", "items": {"anyOf": [{"type": "string", "maxLength": 7},
            {"type": "string", "pattern": "^[^x]*$"}, {"type": "object"}]}})"}) {
    auto built = ParseJsonSchema(schema, {});
    ASSERT_TRUE(built.ok()) << built.error().message;
    Matcher matcher(std::move(*built), trie, {0});
    std::vector<uint64_t> bits(Matcher::WordsFor(trie->vocab()));
    for (int round = 0; round < 8; ++round) {
      MatchState state = matcher.Begin();
      for (int step = 0; step < 25 && !state.has_ended; ++step) {
        ASSERT_TRUE(matcher.Mask(state, bits).ok());
        std::vector<TokenId> allowed;
        for (size_t token = 0; token < trie->vocab(); ++token) {
          MatchState tried = state;
          const auto moved = matcher.Advance(tried, static_cast<TokenId>(token));
          ASSERT_TRUE(moved.ok());
          const bool is_set = (bits[token / 64] >> (token % 64) & 1) != 0;
          ASSERT_EQ(is_set, *moved)
              << schema << " token '" << trie->text(static_cast<TokenId>(token)) << "'";
          if (is_set) allowed.push_back(static_cast<TokenId>(token));
        }
        ASSERT_FALSE(allowed.empty());
        const TokenId token = allowed[random() % allowed.size()];
        ASSERT_TRUE(*matcher.Advance(state, token));
      }
    }
  }
}

// The memory of kept walks stays within its bound, however many walks a grammar needs, and
// forgetting changes no mask.
TEST(TreeWalk, WhatIsKeptIsBounded) {
  std::mt19937 random(4);
  std::vector<std::string> texts = RandomTokens(random);
  for (int i = 0; i < 60000; ++i) {
    std::string text;
    for (size_t length = 1 + random() % 12; length > 0; --length) {
      text += static_cast<char>('a' + random() % 26);
    }
    texts.push_back(text + (i % 9 == 0 ? "\"" : i % 9 == 1 ? "\":" : ""));
  }
  const auto trie = std::make_shared<const TokenTrie>(texts);
  // A pattern of its own for each property: each has a walk of its own, and many more below it.
  std::string schema = R"({"type": "object", "additionalProperties": false, "properties": {)";
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    schema += std::string(letter == 'a' ? "\"" : ", \"") + letter +
              R"(": {"type": "string", "pattern": "^[^)" + letter + "]{0,40}[b-y]*$\"}";
  }
  const auto make = [&] {
    auto built = ParseJsonSchema(schema + "}}", {.compact = true});
    EXPECT_TRUE(built.ok()) << built.error().message;
    return std::make_unique<Matcher>(std::move(*built), trie, std::vector<TokenId>{0});
  };
  const auto matcher = make();
  MatchState state = matcher->Begin();
  std::vector<uint64_t> bits(Matcher::WordsFor(trie->vocab()));
  size_t most = 0;
  int forgotten = 0;
  for (char letter = 'a'; letter <= 'z'; ++letter) {
    const std::string text =
        std::string(letter == 'a' ? "{\"" : ",\"") + letter + "\":\"" + std::string(30, 'n');
    for (const char byte : letter == 'n' ? std::string(",\"n\":\"bcd") : text) {
      const size_t before = matcher->bytes().kept;
      ASSERT_TRUE(matcher->Mask(state, bits).ok());
      const size_t kept = matcher->bytes().kept;
      if (kept < before) ++forgotten;
      most = std::max(most, kept);
      ASSERT_TRUE(*matcher->AdvanceBytes(state, {&byte, 1}));
    }
    ASSERT_TRUE(*matcher->AdvanceBytes(state, "\""));
    if (letter % 5 != 0) continue;
    const auto fresh = make();
    MatchState again = fresh->Begin();
    std::vector<uint64_t> expected(bits.size());
    ASSERT_TRUE(*fresh->AdvanceBytes(again, "{\"b\":\"xyz"));
    ASSERT_TRUE(fresh->Mask(again, expected).ok());
    MatchState same = matcher->Begin();
    ASSERT_TRUE(*matcher->AdvanceBytes(same, "{\"b\":\"xyz"));
    ASSERT_TRUE(matcher->Mask(same, bits).ok());
    EXPECT_EQ(bits, expected) << letter;
  }
  EXPECT_GT(forgotten, 0);
  // A mask may need more until the next one, here up to 0.3 MB.
  EXPECT_LT(most, Matcher::kKeptBytesMax + 300'000);
}

}  // namespace
}  // namespace kvant::grammar
