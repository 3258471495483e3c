// How BERT, uncased and not, takes texts apart, against the fast tokenizer of Hugging Face (see
// tests/reference/make_bert_cases.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/tokenizer/vocabulary_file.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

constexpr std::string_view kWordBegin = "\u2581";

// Every word of the reference is a token, so that a text becomes exactly its words.
TestTokenizer WordTokenizer(const nlohmann::json& cases, const std::string& way) {
  std::set<std::string> words;
  for (const auto& entry : cases) {
    for (const auto& word : entry[1]) words.insert(word.get<std::string>());
  }
  std::vector<std::string> tokens = {"[UNK]"};
  for (const std::string& word : words) tokens.push_back(std::string(kWordBegin) + word);
  std::vector<int32_t> types(tokens.size(), kNormal);
  types[0] = kControl;
  VocabularyFile file("bert");
  file.U32("tokenizer.ggml.unknown_token_id", 0).Tokens(tokens).Types(types);
  // As a reader of other files has it: accents go with capitals where nothing is said of them.
  if (way == "cased" || way == "strip") file.Bool("tokenizer.ggml.normalizer.lowercase", false);
  if (way == "strip") file.Bool("tokenizer.ggml.normalizer.strip_accents", true);
  if (way == "lower") file.Bool("tokenizer.ggml.normalizer.strip_accents", false);
  return MakeTokenizer(file);
}

class BertTokenizers : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Reference, BertTokenizers,
                         testing::Values("uncased", "cased", "lower", "strip"),
                         [](const auto& way) { return std::string(way.param); });

TEST_P(BertTokenizers, CutTextsAsTheFastTokenizerDoes) {
  std::ifstream stream(SourcePath("tests/reference/bert_cases.json"));
  const nlohmann::json cases = nlohmann::json::parse(stream)[GetParam()];
  ASSERT_GT(cases.size(), 100u);
  const TestTokenizer tokenizer = WordTokenizer(cases, GetParam());
  ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
  for (const auto& entry : cases) {
    const auto text = entry[0].get<std::string>();
    std::vector<std::string> words;
    for (const TokenId id : tokenizer.Encode(text)) {
      std::string_view piece = tokenizer->piece(id);
      if (piece.starts_with(kWordBegin)) piece.remove_prefix(kWordBegin.size());
      words.emplace_back(piece);
    }
    EXPECT_EQ(words, entry[1].get<std::vector<std::string>>()) << entry[0].dump(-1, ' ', true);
  }
}

// Characters that no version of Unicode has assigned are part of a word, which is then unknown.
TEST(BertTokenizer, KeepsUnassignedCharacters) {
  const TestTokenizer tokenizer = MakeTokenizer(VocabularyFile("bert")
                                                    .U32("tokenizer.ggml.unknown_token_id", 0)
                                                    .Tokens({"[UNK]", "\u2581ab"})
                                                    .Types({kControl, kNormal}));
  ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
  for (const char* text : {"a\u0378b", "a\u0530b", "a\U000E0080b"}) {
    EXPECT_EQ(tokenizer.Encode(text), std::vector<TokenId>{0}) << text;
  }
  EXPECT_EQ(tokenizer.Encode("a\u200Bb"), std::vector<TokenId>{1}) << "format characters vanish";
}

}  // namespace
}  // namespace kvant::test
