// Tests what tokens lose of a text: how many characters a vocabulary of each kind cannot spell, and
// which special tokens swallow the white space behind them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/tokenizer/vocabulary_file.h"

namespace kvant::test {
namespace {

Encoding EncodeAndCount(const TestTokenizer& tokenizer, std::string_view text) {
  auto encoding = tokenizer->EncodeAndCount(text, {});
  EXPECT_TRUE(encoding.ok());
  return encoding.ok() ? std::move(encoding).value() : Encoding();
}

void ExpectLost(const TestTokenizer& tokenizer, std::string_view text, int64_t lost) {
  const Encoding encoding = EncodeAndCount(tokenizer, text);
  EXPECT_EQ(encoding.unknown_characters, lost) << text;
  EXPECT_EQ(encoding.ids, tokenizer.Encode(text)) << text;
  if (lost == 0) {
    EXPECT_EQ(tokenizer->Decode(encoding.ids, {.special = false}), text);
  }
}

TEST(UnknownCharacters, OfSentencePieceWithoutBytes) {
  const TestTokenizer tokenizer =
      MakeTokenizer(VocabularyFile("llama")
                        .Tokens({"<unk>", "<s>", "</s>", "\u2581", "a", "b"})
                        .Types({kUnknown, kControl, kControl, kNormal, kNormal, kNormal}));
  ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
  ExpectLost(tokenizer, "ab a", 0);
  ExpectLost(tokenizer, "a\u00FC b", 1);
  // One unknown token stands for three characters.
  EXPECT_EQ(EncodeAndCount(tokenizer, "axyzb").ids, (std::vector<TokenId>{3, 4, 0, 5}));
  ExpectLost(tokenizer, "axyzb", 3);
  ExpectLost(tokenizer, "a\xFF\xFE", 2);
  ExpectLost(tokenizer, "", 0);
}

TEST(UnknownCharacters, OfSentencePieceWithSomeBytes) {
  const TestTokenizer tokenizer =
      MakeTokenizer(VocabularyFile("llama")
                        .Tokens({"<unk>", "<s>", "</s>", "\u2581", "a", "<0xC3>", "<0xBC>"})
                        .Types({kUnknown, kControl, kControl, kNormal, kNormal, kByte, kByte}));
  ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
  ExpectLost(tokenizer, "a\u00FC", 0);
  ExpectLost(tokenizer, "a\u00FD\u00FC", 1);
}

TEST(UnknownCharacters, OfByteLevelBpe) {
  // No token for the byte 0xBC, which ü ends with; the word comes twice.
  const TestTokenizer tokenizer = MakeTokenizer(VocabularyFile("gpt2")
                                                    .String("tokenizer.ggml.pre", "gpt-2")
                                                    .Tokens({"a", "\u0120", "\u00C3", "b"})
                                                    .Types({kNormal, kNormal, kNormal, kNormal})
                                                    .Merges({}));
  ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
  ExpectLost(tokenizer, "a b", 0);
  ExpectLost(tokenizer, " a\u00FCb a\u00FCb", 2);
}

TEST(UnknownCharacters, OfWordPiece) {
  const TestTokenizer tokenizer = MakeTokenizer(VocabularyFile("bert")
                                                    .U32("tokenizer.ggml.unknown_token_id", 0)
                                                    .Tokens({"[UNK]", "\u2581ab", "c"})
                                                    .Types({kControl, kNormal, kNormal}));
  ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
  EXPECT_EQ(EncodeAndCount(tokenizer, "AB abc").unknown_characters, 0);
  // A word is lost as a whole.
  ExpectLost(tokenizer, "ab abx", 3);
}

// Converters name the model with hyphens, or in words for people.
TEST(Stripping, IsKnownByTheNameOfTheModel) {
  const auto ids = [](std::string_view name) {
    return MakeTokenizer(VocabularyFile("llama")
                             .String("general.name", name)
                             .Bool("tokenizer.ggml.add_space_prefix", false)
                             .Tokens({"<unk>", "<s>", "</s>", "\u2581", "a", "<|user|>"})
                             .Types({kUnknown, kControl, kControl, kNormal, kNormal, kControl}))
        .Encode("<|user|> a<s> a", {.parse_special = true});
  };
  const std::vector<TokenId> stripped = {5, 4, 1, 3, 4};
  for (const char* name : {"Phi-3-mini-4k-instruct", "phi3", "Phi 3 Mini 4k Instruct"}) {
    EXPECT_EQ(ids(name), stripped) << name;
  }
  for (const char* name : {"Phi-2", "phi", ""}) {
    EXPECT_EQ(ids(name), (std::vector<TokenId>{5, 3, 4, 1, 3, 4})) << name;
  }
}

}  // namespace
}  // namespace kvant::test
