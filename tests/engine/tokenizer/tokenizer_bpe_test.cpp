// Byte-level BPE on vocabularies made here: merging against a naive loop, bytes, special tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/engine/tokenizer/vocabulary_file.h"

namespace kvant {
namespace {

using test::MakeTokenizer;
using test::TestTokenizer;
using test::VocabularyFile;
using testing::ElementsAre;
using testing::IsEmpty;

// Merging as it is defined: of all neighbours the pair of lowest rank, the leftmost of equals.
std::vector<std::string> MergeNaively(
    const std::string& word, const std::map<std::pair<std::string, std::string>, size_t>& ranks) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  for (;;) {
    size_t best = parts.size();
    size_t best_rank = ranks.size();
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find({parts[i], parts[i + 1]});
      if (found != ranks.end() && found->second < best_rank) {
        best = i;
        best_rank = found->second;
      }
    }
    if (best == parts.size()) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(Bpe, MergesLikeTheNaiveLoop) {
  std::mt19937 random(5);
  for (int vocabulary = 0; vocabulary < 40; ++vocabulary) {
    std::vector<std::string> tokens{"a", "b", "c"};
    std::vector<std::string> merges;
    std::map<std::pair<std::string, std::string>, size_t> ranks;
    while (ranks.size() < 30) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      if (left.size() + right.size() > 8 ||
          !ranks.try_emplace({left, right}, ranks.size()).second) {
        continue;
      }
      merges.push_back(left + " " + right);
      if (std::find(tokens.begin(), tokens.end(), left + right) == tokens.end()) {
        tokens.push_back(left + right);
      }
    }
    const TestTokenizer tokenizer = MakeTokenizer(
        VocabularyFile("gpt2").String("tokenizer.ggml.pre", "gpt-2").Tokens(tokens).Merges(merges));
    ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
    for (int text = 0; text < 50; ++text) {
      std::string word;
      for (size_t i = random() % 40 + 1; i > 0; --i) word += static_cast<char>('a' + random() % 3);
      std::vector<std::string> pieces;
      for (const TokenId id : tokenizer.Encode(word)) pieces.emplace_back(tokenizer->piece(id));
      EXPECT_EQ(pieces, MergeNaively(word, ranks)) << word;
    }
  }
}

VocabularyFile Small() {
  return VocabularyFile("gpt2")
      .String("tokenizer.ggml.pre", "gpt-2")
      .Tokens({"a", "b", "\u0120", "\u0120a", "ab", "<|end|>", "::", "<unk>", "\u00FF", "\u010A"})
      .Types({1, 1, 1, 1, 1, 3, 4, 2, 1, 1})
      .Merges({"a b", "\u0120 a"});
}

TEST(Bpe, SpellsBytesInItsAlphabet) {
  const TestTokenizer tokenizer = MakeTokenizer(Small());
  ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
  EXPECT_THAT(tokenizer.Encode("ab ab\n\xFF"), ElementsAre(4, 2, 4, 9, 8));
  EXPECT_EQ(tokenizer->Decode(tokenizer.Encode(" ab a\n\xFF"), {.special = false}), " ab a\n\xFF");
  EXPECT_EQ(tokenizer->TokenBytes(3, {.special = false}), " a");
  EXPECT_THAT(tokenizer.Encode(""), IsEmpty());
  EXPECT_STREQ(tokenizer->kind(), "bpe");
}

TEST(Bpe, MissingBytesBecomeTheUnknownTokenWhereThereIsOne) {
  EXPECT_THAT(MakeTokenizer(Small()).Encode("aXa"), ElementsAre(0, 0));
  EXPECT_THAT(MakeTokenizer(Small().U32("tokenizer.ggml.unknown_token_id", 7)).Encode("aXa"),
              ElementsAre(0, 7, 0));
}

TEST(Bpe, ParsesControlTokensOnlyWhereAskedAndUserDefinedOnesAlways) {
  const TestTokenizer tokenizer = MakeTokenizer(Small().U32("tokenizer.ggml.unknown_token_id", 7));
  EXPECT_THAT(tokenizer.Encode("a::b<|end|>", {.parse_special = true}), ElementsAre(0, 6, 1, 5));
  // "<|end|>" has no bytes in this vocabulary: seven unknown ones.
  EXPECT_THAT(tokenizer.Encode("a::b<|end|>"), ElementsAre(0, 6, 1, 7, 7, 7, 7, 7, 7, 7));
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{0, 6, 5}, {.special = false}), "a::");
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{0, 6, 5}, {.special = true}), "a::<|end|>");
  EXPECT_TRUE(tokenizer->is_control(5));
  EXPECT_TRUE(tokenizer->is_end_of_generation(5));
  EXPECT_EQ(tokenizer->special().eot, 5);
}

TEST(Bpe, IgnoreMergesPrefersTheWholeWord) {
  // "abab" is a token that no merge leads to.
  auto vocabulary = [](const char* pre) {
    return VocabularyFile("gpt2")
        .String("tokenizer.ggml.pre", pre)
        .Tokens({"a", "b", "ab", "abab"})
        .Merges({"a b"});
  };
  EXPECT_THAT(MakeTokenizer(vocabulary("llama-bpe")).Encode("abab"), ElementsAre(3));
  EXPECT_THAT(MakeTokenizer(vocabulary("dbrx")).Encode("abab"), ElementsAre(2, 2));
}

TEST(Bpe, AddsBeginningAndEndWhereTheMetadataAsks) {
  VocabularyFile vocabulary = Small();
  vocabulary.U32("tokenizer.ggml.bos_token_id", 7).U32("tokenizer.ggml.eos_token_id", 5);
  EXPECT_THAT(MakeTokenizer(vocabulary).Encode("a", {.add_special = true}), ElementsAre(0));
  vocabulary.Bool("tokenizer.ggml.add_bos_token", true).Bool("tokenizer.ggml.add_eos_token", true);
  EXPECT_THAT(MakeTokenizer(vocabulary).Encode("a", {.add_special = true}), ElementsAre(7, 0, 5));
  EXPECT_THAT(MakeTokenizer(vocabulary).Encode("", {.add_special = true}), ElementsAre(7, 5));
  EXPECT_THAT(MakeTokenizer(vocabulary).Encode("a"), ElementsAre(0));
}

TEST(Bpe, PreOverrideReplacesTheFilesChoice) {
  VocabularyFile vocabulary = VocabularyFile("gpt2").Tokens({"1", "11"}).Merges({"1 1"});
  vocabulary.String("tokenizer.ggml.pre", "gpt-2");
  EXPECT_THAT(MakeTokenizer(vocabulary).Encode("11"), ElementsAre(1));
  const TestTokenizer overridden = MakeTokenizer(vocabulary, {.pre_override = "qwen2"});
  EXPECT_THAT(overridden.Encode("11"), ElementsAre(0, 0));
  EXPECT_EQ(overridden->pre_tokenizer(), "qwen2");
  // Even where the file's own is unknown.
  vocabulary.String("tokenizer.ggml.pre", "of-the-future");
  EXPECT_EQ(MakeTokenizer(vocabulary).result.error().code, ErrorCode::kNotSupported);
  EXPECT_TRUE(MakeTokenizer(vocabulary, {.pre_override = "gpt-2"}).result.ok());
  vocabulary.Remove("tokenizer.ggml.pre");
  EXPECT_EQ(MakeTokenizer(vocabulary)->pre_tokenizer(), "default");
}

TEST(Bpe, LongWordsAndTextsPass) {
  const TestTokenizer tokenizer = MakeTokenizer(Small());
  const std::string word = std::string(200000, 'a') + "b";
  EXPECT_EQ(tokenizer->Decode(tokenizer.Encode(word), {.special = false}), word);
  const std::string spaces(200000, ' ');
  EXPECT_EQ(tokenizer->Decode(tokenizer.Encode(spaces), {.special = false}), spaces);
}

}  // namespace
}  // namespace kvant
