// RWKV's tokenizer against a search over all pieces, and its vocabulary file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "engine/convert/rwkv_vocabulary.h"
#include "tests/engine/tokenizer/vocabulary_file.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using Ids = std::vector<TokenId>;

// Pieces as files spell them, and their bytes.
struct Piece {
  const char* spelt;
  std::string bytes;
};

std::vector<Piece> Pieces() {
  return {{"<s>", ""},       {"a", "a"},           {"b", "b"},        {"ab", "ab"},
          {"aba", "aba"},    {"abab b", "abab b"}, {"\\n", "\n"},     {"\\n\\n", "\n\n"},
          {"\\t'", "\t'"},   {"\\\\", "\\"},       {"\\xe4", "\xE4"}, {"\\xe4\\xb8", "\xE4\xB8"},
          {"\\xff", "\xFF"}, {" ", " "},           {"b a", "b a"},    {"\\xc3\\xa9", "\xC3\xA9"}};
}

VocabularyFile WorldFile() {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (const Piece& piece : Pieces()) {
    tokens.emplace_back(piece.spelt);
    types.push_back(piece.bytes.empty() ? kControl : kNormal);
  }
  tokens.emplace_back("[PAD16]");
  types.push_back(kUnused);
  return VocabularyFile("rwkv").Tokens(tokens).Types(types);
}

// From each place the longest piece.
Ids GreedyIds(std::string_view text) {
  const std::vector<Piece> pieces = Pieces();
  Ids ids;
  while (!text.empty()) {
    size_t best = 0;
    for (size_t id = 1; id < pieces.size(); ++id) {
      const bool longer = best == 0 || pieces[id].bytes.size() > pieces[best].bytes.size();
      if (text.starts_with(pieces[id].bytes) && longer) best = id;
    }
    if (best > 0) ids.push_back(static_cast<TokenId>(best));
    text.remove_prefix(best > 0 ? pieces[best].bytes.size() : 1);
  }
  return ids;
}

TEST(RwkvTokenizer, TakesTheLongestPieceFromEachPlace) {
  const TestTokenizer tokenizer = MakeTokenizer(WorldFile());
  ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
  EXPECT_STREQ(tokenizer->kind(), "rwkv");
  // "abab" begins a long piece that does not fit.
  EXPECT_EQ(tokenizer.Encode("ababb"), (Ids{4, 2, 2}));
  EXPECT_EQ(tokenizer.Encode("abab b\n\n\n"), (Ids{5, 7, 6}));
  EXPECT_EQ(tokenizer.Encode("<s>a[PAD16]"), Ids{1}) << "names of other tokens are no text";
  std::mt19937 random(3);
  const std::string letters = "ab \n\t'\\\xE4\xB8\xFF\xC3\xA9";
  for (int i = 0; i < 500; ++i) {
    std::string text;
    for (size_t n = random() % 20; n > 0; --n) text += letters[random() % letters.size()];
    EXPECT_EQ(tokenizer.Encode(text), GreedyIds(text)) << text;
    std::string spelt;
    for (const TokenId id : GreedyIds(text)) spelt += Pieces()[static_cast<size_t>(id)].bytes;
    EXPECT_EQ(tokenizer->Decode(GreedyIds(text), {}), spelt);
  }
}

TEST(RwkvTokenizer, CountsBytesThatItCannotSpell) {
  const TestTokenizer tokenizer = MakeTokenizer(WorldFile());
  ASSERT_TRUE(tokenizer.result.ok());
  const auto encoding = tokenizer->EncodeAndCount("axb", {});
  ASSERT_TRUE(encoding.ok());
  EXPECT_EQ(encoding->ids, (Ids{1, 2}));
  EXPECT_EQ(encoding->unknown_characters, 1);
  const TestTokenizer unknown =
      MakeTokenizer(WorldFile().U32("tokenizer.ggml.unknown_token_id", 0));
  ASSERT_TRUE(unknown.result.ok());
  EXPECT_EQ(unknown.Encode("axb"), (Ids{1, 0, 2}));
}

Result<convert::Vocabulary> ReadLines(const std::string& lines, int64_t vocab_size) {
  const TemporaryFolder folder;
  const std::string path = folder / std::string(convert::kRwkvVocabularyFile);
  std::ofstream(path, std::ios::binary) << lines;
  return convert::ReadRwkvVocabulary(path, vocab_size);
}

TEST(RwkvVocabulary, HoldsLiteralsOfPython) {
  const auto read = ReadLines(
      "1 '\\x00' 1\n"
      "2 ' \\'\"' 3\n"
      "3 b'\\xe4\\xb8' 2\r\n"
      "4 '\\xe9\\u4e2d\\U0001f600' 9\n"
      "5 \"it's\\n\\t\\r\\\\\" 8\n"
      "6 '中' 3\n",
      9);
  ASSERT_TRUE(read.ok()) << read.error().message;
  const std::vector<std::string> expected = {"<s>",
                                             "\\x00",
                                             " '\"",
                                             "\\xe4\\xb8",
                                             "\\xc3\\xa9\\xe4\\xb8\\xad\\xf0\\x9f\\x98\\x80",
                                             "it's\\n\\t\\r\\\\",
                                             "\\xe4\\xb8\\xad",
                                             "[PAD7]",
                                             "[PAD8]"};
  EXPECT_EQ(read->tokens, expected);
  EXPECT_EQ(read->model, "rwkv");
  EXPECT_EQ(read->bos, 0);
  EXPECT_EQ(read->types.front(), convert::Vocabulary::Type::kControl);
  EXPECT_EQ(read->types.back(), convert::Vocabulary::Type::kUnused);
}

TEST(RwkvVocabulary, NamesTheLineThatIsWrong) {
  for (const char* line :
       {"1 'a' 2", "2 'a' 1", "1 'a'", "1 a 1", "1 '\\q' 2", "1 b'\\u1234' 6", "1 '\\x1' 1",
        "1 '' 0", "1 'a 1", "x 'a' 1", "1 'a' 1x", "1 '\\U00110000' 4"}) {
    const auto read = ReadLines(line, 9);
    ASSERT_FALSE(read.ok()) << line;
    EXPECT_THAT(read.error().message, testing::HasSubstr("line 1: expected token 1")) << line;
  }
  EXPECT_FALSE(ReadLines("1 'a' 1\n2 'b' 1\n", 2).ok()) << "more tokens than the model has";
}

}  // namespace
}  // namespace kvant::test
