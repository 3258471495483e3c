// The tokenizers of encoders from folders: ids of texts and of pairs as the fast tokenizers of
// Hugging Face make them (tests/reference/make_encoder_tokenizers.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kvant/embed.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

std::vector<std::string> TokenizerNames() {
  std::vector<std::string> names;
  const std::string path = SourcePath("tests/reference/encoder_tokenizers");
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class EncoderTokenizers : public testing::TestWithParam<std::string> {
 protected:
  // The small model of the class with the tokenizer's files and as many rows as it has tokens.
  auto Open() const {
    SeededModel seeded(kSeededEmbedders + json_["class"].get<std::string>());
    const int64_t tokens = json_["vocab_size"];
    seeded.config["vocab_size"] = tokens;
    for (const auto& [name, content] : json_["files"].items()) seeded.files[name] = content;
    seeded.change_weights = [tokens](std::map<std::string, HfWeights>& weights) {
      for (auto& [name, tensor] : weights) {
        const bool embeds =
            name.ends_with("word_embeddings.weight") || name.ends_with("tok_embeddings.weight");
        if (!embeds) continue;
        tensor.values.assign(static_cast<size_t>(tokens * tensor.shape[1]), 0.5f);
        tensor.shape[0] = tokens;
      }
    };
    return seeded.Open();
  }

  nlohmann::json json_ = nlohmann::json::parse(
      std::ifstream(SourcePath("tests/reference/encoder_tokenizers/" + GetParam() + ".json")));
};

INSTANTIATE_TEST_SUITE_P(Reference, EncoderTokenizers, testing::ValuesIn(TokenizerNames()),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::ranges::replace(text, '-', '_');
                           return text;
                         });

TEST_P(EncoderTokenizers, TextsBecomeTheirIds) {
  const auto model = Open();
  ASSERT_NE(model, nullptr);
  ASSERT_GT(json_["cases"].size(), 50u);
  for (const auto& entry : json_["cases"]) {
    const auto ids = model->tokenizer().Encode(entry[0].get<std::string>(),
                                               {.add_special = true, .parse_special = true});
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, entry[1].get<std::vector<TokenId>>()) << entry[0].dump(-1, ' ', true);
  }
}

TEST_P(EncoderTokenizers, PairsHaveTheSeparatorsOfTheTemplate) {
  auto embedder = Embedder::Create(Open(), {.threads = 1, .pooling = Pooling::kCls});
  ASSERT_TRUE(embedder.ok()) << embedder.error().message;
  for (const auto& entry : json_["pairs"]) {
    const auto first = entry[0].get<std::string>();
    const auto second = entry[1].get<std::string>();
    // Names of control tokens are text here, as a user's words should be.
    const bool names_control = (first + second).find("mask") != std::string::npos;
    const auto pair = (*embedder)->PairTokens(first, second);
    ASSERT_TRUE(pair.ok()) << pair.error().message;
    if (!names_control) {
      EXPECT_EQ(pair->ids, entry[2].get<std::vector<TokenId>>()) << entry.dump();
    }
    if (pair->types.empty()) continue;
    EXPECT_EQ(pair->types.size(), pair->ids.size());
    if (!names_control) {
      EXPECT_EQ(pair->types, entry[3].get<std::vector<int32_t>>());
    }
  }
}

// Folders of before 2020 have a list of words and no tokenizer.json.
TEST(EncoderTokenizer, AListOfWordsIsAWordPieceVocabulary) {
  const nlohmann::json cases = nlohmann::json::parse(
      std::ifstream(SourcePath("tests/reference/encoder_tokenizers/wordpiece.json")));
  std::vector<std::string> words(cases["vocab_size"].get<size_t>());
  for (const auto& [word, id] : cases["files"]["tokenizer.json"]["model"]["vocab"].items()) {
    words[id.get<size_t>()] = word;
  }
  HfFolder folder("BertModel");
  folder.config = SeededModel(std::string(kSeededEmbedders) + "bert").config;
  folder.config["vocab_size"] = words.size();
  folder.weights.clear();
  folder.Write();
  std::filesystem::remove(folder / "tokenizer.json");
  std::string list;
  for (const std::string& word : words) list += word + "\n";
  folder.WriteText("vocab.txt", list);
  folder.WriteJson("tokenizer_config.json", {{"do_lower_case", true}});
  // The vocabulary is read before weights are missed.
  const auto missed = convert::ConvertFolder(folder.Path(), folder / "out.gguf", {.threads = 1});
  ASSERT_FALSE(missed.ok());
  EXPECT_THAT(missed.error().message, HasSubstr("embeddings.word_embeddings.weight is missing"));
}

struct TokenizerStep {
  const char* name;
  const char* pointer;  // into tokenizer.json
  nlohmann::json value;
  const char* expected;
};

void PrintTo(const TokenizerStep& step, std::ostream* out) { *out << step.name << step.pointer; }

class EncoderTokenizerSteps : public testing::TestWithParam<TokenizerStep> {};

TEST_P(EncoderTokenizerSteps, AreNamedWhereTheyAreNotUnderstood) {
  const nlohmann::json cases = nlohmann::json::parse(std::ifstream(
      SourcePath(std::string("tests/reference/encoder_tokenizers/") + GetParam().name + ".json")));
  SeededModel seeded(kSeededEmbedders + cases["class"].get<std::string>());
  seeded.config["vocab_size"] = cases["vocab_size"];
  seeded.files["tokenizer.json"] = cases["files"]["tokenizer.json"];
  seeded.files["tokenizer.json"][nlohmann::json::json_pointer(GetParam().pointer)] =
      GetParam().value;
  EXPECT_THAT(seeded.Message(), HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    Unknown, EncoderTokenizerSteps,
    testing::Values(
        TokenizerStep{"wordpiece", "/normalizer", nullptr, "normalizer cannot be converted"},
        TokenizerStep{"wordpiece", "/normalizer/clean_text", false, "BertNormalizer"},
        TokenizerStep{"wordpiece", "/pre_tokenizer/type", "Whitespace", "a BertPreTokenizer"},
        TokenizerStep{"wordpiece", "/model/continuing_subword_prefix", "@@", "@@"},
        TokenizerStep{"wordpiece", "/model/max_input_chars_per_word", 50, "50"},
        TokenizerStep{"wordpiece", "/model/vocab", nlohmann::json::array(), "an object of tokens"},
        TokenizerStep{"unigram", "/normalizer", {{"type", "Lowercase"}}, "Lowercase"},
        TokenizerStep{"unigram", "/pre_tokenizer", {{"type", "Punctuation"}}, "Punctuation"},
        TokenizerStep{"unigram", "/model/byte_fallback", true, "a piece for each byte, found 0"},
        TokenizerStep{"unigram", "/model/vocab/7", "x", "vocab[7] is"},
        TokenizerStep{"unigram", "/model/unk_id", 100000, "unk_id"}));

}  // namespace
}  // namespace kvant::test
