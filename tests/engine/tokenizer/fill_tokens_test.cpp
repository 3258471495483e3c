// The tokens for gaps in a text: by keys, by the names of published models, and what is no token.
#include "engine/tokenizer/fill_tokens.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/engine/tokenizer/vocabulary_file.h"

namespace kvant::test {
namespace {

using Id = std::optional<TokenId>;

// A vocabulary with these pieces behind <unk>, "a" and the end token.
VocabularyFile FileWith(const std::vector<std::string>& pieces, const std::vector<int32_t>& types) {
  std::vector<std::string> tokens = {"<unk>", "a", "</s>"};
  std::vector<int32_t> all = {kUnknown, kNormal, kControl};
  tokens.insert(tokens.end(), pieces.begin(), pieces.end());
  all.insert(all.end(), types.begin(), types.end());
  return VocabularyFile("llama").Tokens(tokens).Types(all).Scores(
      std::vector<float>(tokens.size()));
}

Result<FillTokens> Found(const VocabularyFile& vocabulary) {
  const Bytes bytes = vocabulary.Build();
  auto file = formats::GgufFile::Parse(bytes.span(), "test.gguf");
  if (!file.ok()) return file.error();
  const auto tokenizer = Tokenizer::Create(*file);
  if (!tokenizer.ok()) return tokenizer.error();
  return FindFillTokens(*file, **tokenizer);
}

TEST(FillTokens, NamesOfPublishedModels) {
  const std::vector<std::vector<std::string>> models = {
      {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>",
       "<|fim_pad|>"},                                            // Qwen 2.5 Coder
      {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},           // StarCoder
      {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},     // DeepSeek Coder
      {"▁<PRE>", "▁<SUF>", "▁<MID>"},                             // CodeLlama
      {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM
  };
  for (const auto& names : models) {
    for (const int32_t type : {kControl, kUserDefined}) {
      const auto found = Found(FileWith(names, std::vector<int32_t>(names.size(), type)));
      ASSERT_TRUE(found.ok()) << found.error().message;
      EXPECT_TRUE(found->can_fill()) << names[0];
      EXPECT_EQ(found->prefix, Id(3));
      EXPECT_EQ(found->suffix, Id(4));
      EXPECT_EQ(found->middle, Id(5));
      EXPECT_EQ(found->repository, names.size() > 3 ? Id(6) : Id());
      EXPECT_EQ(found->file, names.size() > 3 ? Id(7) : Id());
      EXPECT_EQ(found->padding, names.size() > 3 ? Id(8) : Id());
    }
    const auto text = Found(FileWith(names, std::vector<int32_t>(names.size(), kNormal)));
    ASSERT_TRUE(text.ok());
    EXPECT_FALSE(text->can_fill()) << "pieces that are ordinary text";
  }
}

TEST(FillTokens, KeysCountBeforeNames) {
  const std::vector<std::string> pieces = {
      "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "x", "y", "z"};
  const std::vector<int32_t> types = {kControl, kControl, kControl, kNormal, kNormal, kNormal};
  VocabularyFile file = FileWith(pieces, types);
  file.U32("tokenizer.ggml.fim_pre_token_id", 6).U32("tokenizer.ggml.suffix_token_id", 7);
  auto found = Found(file);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->prefix, Id(6));
  EXPECT_EQ(found->suffix, Id(7)) << "a key of older files";
  EXPECT_EQ(found->middle, Id(5));
  file.U32("tokenizer.ggml.fim_suf_token_id", 8).I32("tokenizer.ggml.fim_mid_token_id", -1);
  found = Found(file);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->suffix, Id(8));
  EXPECT_EQ(found->middle, Id()) << "the file says that there is none";
  EXPECT_FALSE(found->can_fill());
  file.U32("tokenizer.ggml.middle_token_id", 100);
  found = Found(file);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("middle_token_id"), std::string::npos);
}

}  // namespace
}  // namespace kvant::test
