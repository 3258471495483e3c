// Vocabularies of characters, gemma4's and unigram, against Hugging Face's tokenizers (see
// tests/reference/make_character_tokenizer_cases.py), and what files may say of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/tokenizer/vocabulary_file.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

const json& Cases() {
  static const json cases = [] {
    std::ifstream stream(SourcePath("tests/reference/character_tokenizers.json"));
    return json::parse(stream);
  }();
  return cases;
}

std::vector<int32_t> TypesOf(const std::vector<std::string>& tokens) {
  std::vector<int32_t> types;
  for (const std::string& token : tokens) {
    const bool control = token == "<pad>" || token == "<eos>" || token == "<bos>";
    const bool byte = token.size() == 6 && token.starts_with("<0x");
    types.push_back(token == "<unk>" ? kUnknown : control ? kControl : byte ? kByte : kNormal);
  }
  return types;
}

VocabularyFile Gemma4(std::string_view model = "gemma4") {
  const auto tokens = Cases()["gemma4"]["tokens"].get<std::vector<std::string>>();
  VocabularyFile file(model);
  file.Tokens(tokens).Types(TypesOf(tokens));
  file.Merges(Cases()["gemma4"]["merges"].get<std::vector<std::string>>());
  file.U32("tokenizer.ggml.bos_token_id", 2).U32("tokenizer.ggml.unknown_token_id", 3);
  return file;
}

VocabularyFile Unigram() {
  const auto tokens = Cases()["unigram"]["tokens"].get<std::vector<std::string>>();
  VocabularyFile file("t5");
  return file.Tokens(tokens)
      .Types(TypesOf(tokens))
      .Scores(Cases()["unigram"]["scores"].get<std::vector<float>>());
}

TEST(Gemma4Tokenizer, EncodesAsHuggingFaceDoes) {
  const auto texts = Cases()["texts"].get<std::vector<std::string>>();
  for (const char* model : {"gemma4", "gpt2"}) {
    VocabularyFile file = Gemma4(model);
    if (model == std::string_view("gpt2")) file.String("tokenizer.ggml.pre", "mmbert");
    const TestTokenizer tokenizer = MakeTokenizer(file);
    ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto expected = Cases()["gemma4"]["ids"][i].get<Ids>();
      // A run of line breaks that is a piece is taken whole; the library merges two by two, which
      // for this vocabulary gives the same.
      EXPECT_EQ(tokenizer.Encode(texts[i]), expected)
          << model << ", text " << i << ": " << texts[i];
      EXPECT_EQ(tokenizer->Decode(expected, {}), texts[i]) << model;
    }
  }
}

TEST(Gemma4Tokenizer, BeginsWithBosWhateverTheFileSays) {
  const TestTokenizer tokenizer =
      MakeTokenizer(Gemma4().Bool("tokenizer.ggml.add_bos_token", false));
  ASSERT_TRUE(tokenizer.result.ok());
  EXPECT_EQ(tokenizer.Encode("", {.add_special = true}), Ids{2});
  EXPECT_EQ(tokenizer->pre_tokenizer(), "gemma4");
}

TEST(Gemma4Tokenizer, TakesARunOfLineBreaksWhole) {
  const TestTokenizer tokenizer = MakeTokenizer(
      VocabularyFile("gemma4").Tokens({"a", "\n", "\n\n\n", "\n\n"}).Merges({"\n \n"}));
  ASSERT_TRUE(tokenizer.result.ok());
  EXPECT_EQ(tokenizer.Encode("a\n\n\na"), (Ids{0, 2, 0}));  // not reached by merges
  EXPECT_EQ(tokenizer.Encode("\n\n\n\n"), (Ids{3, 3}));
}

TEST(UnigramTokenizer, EncodesAsHuggingFaceDoes) {
  const auto texts = Cases()["texts"].get<std::vector<std::string>>();
  struct Form {
    const char* name;
    bool prefix;
    bool merge;
  };
  for (const Form& form :
       {Form{"plain", false, false}, Form{"prefix", true, false}, Form{"merged", true, true}}) {
    const TestTokenizer tokenizer =
        MakeTokenizer(Unigram()
                          .Bool("tokenizer.ggml.add_space_prefix", form.prefix)
                          .Bool("tokenizer.ggml.remove_extra_whitespaces", form.merge));
    ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].empty()) continue;  // Hugging Face puts a space in front of nothing, too
      EXPECT_EQ(tokenizer.Encode(texts[i]), Cases()["unigram"][form.name][i].get<Ids>())
          << form.name << ", text " << i << ": " << texts[i];
    }
  }
}

TEST(UnigramTokenizer, CountsWhatItCannotSpell) {
  const TestTokenizer tokenizer = MakeTokenizer(Unigram());
  ASSERT_TRUE(tokenizer.result.ok());
  const auto out = tokenizer->EncodeAndCount("s\xE6\x97\xA5\xE6\x9C\xACs", {});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->unknown_characters, 2);
  EXPECT_EQ(out->ids, (Ids{6, 2, 6}));
  EXPECT_EQ(tokenizer.Encode("s", {.add_special = true}), (Ids{6, 1}));
  EXPECT_STREQ(tokenizer->kind(), "unigram");
}

TEST(UnigramTokenizer, RefusesWhatItCannotDo) {
  const TestTokenizer scoreless = MakeTokenizer(Unigram().Remove("tokenizer.ggml.scores"));
  ASSERT_FALSE(scoreless.result.ok());
  EXPECT_EQ(scoreless.result.error().message, "test.gguf: tokenizer.ggml.scores is absent");
  std::vector<float> scores = Cases()["unigram"]["scores"].get<std::vector<float>>();
  scores[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(MakeTokenizer(Unigram().Scores(scores)).result.ok());
}

// ---- Tokens that end generation, and that are never generated -----------------------------------

VocabularyFile Named(const std::vector<std::string>& tokens) {
  return VocabularyFile("gpt2").String("tokenizer.ggml.pre", "gpt-2").Tokens(tokens).Merges({});
}

TEST(EndTokens, EveryNameOfLlamaCppEndsGeneration) {
  for (const char* name : {"<|eot_id|>",
                           "<|im_end|>",
                           "<|end|>",
                           "<|return|>",
                           "<|call|>",
                           "<|calls|>",
                           "<|flush|>",
                           "<end_of_turn>",
                           "<|endoftext|>",
                           "</s>",
                           "<|eom_id|>",
                           "<EOT>",
                           "_<EOT>",
                           "[EOT]",
                           "[EOS]",
                           "<|end_of_text|>",
                           "<end_of_utterance>",
                           "<eos>",
                           "<turn|>",
                           "<|tool_response>",
                           "<|ifm|im_end|>",
                           "[e~[",
                           "<｜end▁of▁sentence｜>"}) {
    const TestTokenizer tokenizer = MakeTokenizer(Named({"a", name}));
    ASSERT_TRUE(tokenizer.result.ok());
    EXPECT_TRUE(tokenizer->is_end_of_generation(1)) << name;
    EXPECT_TRUE(tokenizer->is_control(1)) << name;
  }
}

TEST(EndTokens, SomeNamesEndNothingBesideOthers) {
  const auto ends = [](const std::vector<std::string>& tokens) {
    return MakeTokenizer(Named(tokens))->special().end_of_generation;
  };
  EXPECT_EQ(ends({"<|end|>", "<|return|>", "<|call|>"}), (Ids{1, 2}));
  EXPECT_EQ(ends({"<|end|>", "<|calls|>", "<|flush|>"}), (Ids{1, 2}));
  EXPECT_EQ(ends({"<|end|>", "<|return|>", "<|flush|>"}), (Ids{0, 1, 2}));
  EXPECT_EQ(ends({"</s>", "<|tool_response>", "a"}), Ids{1});
  EXPECT_EQ(ends({"</s>", "<|plamo:eos|>", "a"}), Ids{});
  const TestTokenizer own = MakeTokenizer(
      Named({"<|end|>", "<|return|>", "<|call|>"}).U32("tokenizer.ggml.eos_token_id", 0));
  EXPECT_TRUE(own->is_end_of_generation(0));
  const TestTokenizer listed = MakeTokenizer(
      Named({"<|end|>", "<|return|>", "<|call|>"})
          .Numbers<int32_t>("tokenizer.ggml.eos_token_ids", formats::GgufType::kInt32, {0}));
  EXPECT_TRUE(listed->is_end_of_generation(0));
}

TEST(ListsOfTokens, AreReadAndChecked) {
  struct ListKey {
    const char* key;
    std::vector<TokenId> SpecialTokens::*ids;
  };
  for (const ListKey& list :
       {ListKey{"tokenizer.ggml.suppress_tokens", &SpecialTokens::suppressed},
        ListKey{"tokenizer.ggml.eos_token_ids", &SpecialTokens::end_of_generation}}) {
    const TestTokenizer tokenizer = MakeTokenizer(
        Named({"a", "b", "c"}).Numbers<int32_t>(list.key, formats::GgufType::kInt32, {2, 0}));
    ASSERT_TRUE(tokenizer.result.ok()) << tokenizer.result.error().message;
    EXPECT_THAT(tokenizer->special().*list.ids, ::testing::UnorderedElementsAre(0, 2));
    const TestTokenizer beyond = MakeTokenizer(
        Named({"a", "b", "c"}).Numbers<int32_t>(list.key, formats::GgufType::kInt32, {3}));
    ASSERT_FALSE(beyond.result.ok());
    EXPECT_EQ(beyond.result.error().message,
              std::string("test.gguf: ") + list.key + "[0] is 3, but the vocabulary has 3 tokens");
    EXPECT_FALSE(MakeTokenizer(Named({"a"}).U32(list.key, 0)).result.ok());
  }
}

}  // namespace
}  // namespace kvant::test
