// Folders of Whisper: vocabularies whose last ids have no token in the folder's files, files of
// older tokenizers, and what a text begins with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/convert/vocabulary.h"
#include "engine/generate/model_generation.h"
#include "formats/gguf.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using convert::Vocabulary;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Type = Vocabulary::Type;

// The files of older tokenizers.
class OldFolder {
 public:
  OldFolder() {
    folder_.WriteText("vocab.json", json({{"a", 0}, {"b", 1}, {"ab", 2}, {"\u0120", 3}}).dump());
    folder_.WriteText("merges.txt", "#version: 0.2\na b\n");
  }

  Result<Vocabulary> Read(int64_t size) const {
    return convert::ReadVocabulary(folder_.Path(), formats::JsonObject("tokenizer_config.json"),
                                   size, {.has_speech_tokens = true});
  }

  HfFolder folder_;
};

struct SpecialId {
  int32_t id;
  std::string text;
};

// Ids of openai/whisper, tokenizer.py.
TEST(SpeechVocabulary, HasTheSpecialIdsOfTheThreeSizes) {
  const std::map<int64_t, std::vector<SpecialId>> known = {{51864,
                                                            {{50256, "<|endoftext|>"},
                                                             {50257, "<|startoftranscript|>"},
                                                             {50258, "<|en|>"},
                                                             {50356, "<|su|>"},
                                                             {50357, "<|translate|>"},
                                                             {50358, "<|transcribe|>"},
                                                             {50362, "<|notimestamps|>"},
                                                             {50363, "<|0.00|>"},
                                                             {51863, "<|30.00|>"}}},
                                                           {51865,
                                                            {{50257, "<|endoftext|>"},
                                                             {50258, "<|startoftranscript|>"},
                                                             {50259, "<|en|>"},
                                                             {50260, "<|zh|>"},
                                                             {50261, "<|de|>"},
                                                             {50358, "<|translate|>"},
                                                             {50359, "<|transcribe|>"},
                                                             {50360, "<|startoflm|>"},
                                                             {50361, "<|startofprev|>"},
                                                             {50362, "<|nospeech|>"},
                                                             {50363, "<|notimestamps|>"},
                                                             {50364, "<|0.00|>"},
                                                             {50367, "<|0.06|>"},
                                                             {50415, "<|1.02|>"},
                                                             {51864, "<|30.00|>"}}},
                                                           {51866,
                                                            {{50258, "<|startoftranscript|>"},
                                                             {50358, "<|yue|>"},
                                                             {50359, "<|translate|>"},
                                                             {50360, "<|transcribe|>"},
                                                             {50364, "<|notimestamps|>"},
                                                             {50365, "<|0.00|>"},
                                                             {51865, "<|30.00|>"}}}};
  for (const auto& [size, tokens] : known) {
    const auto vocabulary = OldFolder().Read(size);
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
    ASSERT_EQ(std::ssize(vocabulary->tokens), size);
    EXPECT_EQ(vocabulary->model, "gpt2");
    EXPECT_EQ(vocabulary->pre, "gpt-2");
    EXPECT_THAT(vocabulary->merges, ElementsAre("a b"));
    EXPECT_EQ(vocabulary->tokens[2], "ab");
    EXPECT_EQ(vocabulary->types[4], Type::kUnused);
    for (const SpecialId& token : tokens) {
      EXPECT_EQ(vocabulary->tokens[static_cast<size_t>(token.id)], token.text) << size;
      EXPECT_EQ(vocabulary->types[static_cast<size_t>(token.id)], Type::kControl) << token.text;
    }
  }
}

TEST(SpeechVocabulary, OtherSizesHaveWhatTheFolderNames) {
  OldFolder old;
  old.folder_.WriteText("added_tokens.json", R"({"<|endoftext|>": 4, "<|x|>": 5})");
  const auto vocabulary = old.Read(8);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  EXPECT_THAT(vocabulary->tokens,
              ElementsAre("a", "b", "ab", "\u0120", "<|endoftext|>", "<|x|>", "[PAD6]", "[PAD7]"));
  EXPECT_EQ(vocabulary->types[5], Type::kControl);
  EXPECT_EQ(vocabulary->add_eos, false);
}

TEST(SpeechVocabulary, BrokenFilesAreNamed) {
  OldFolder old;
  old.folder_.WriteText("vocab.json", R"({"a": 0, "b": 9})");
  auto read = old.Read(8);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("vocab.json"));
  old.folder_.WriteText("vocab.json", R"({"a": 0, "b": 1})");
  old.folder_.WriteText("merges.txt", "#version: 0.2\nab\n");
  read = old.Read(8);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("expected two parts"));
}

// The tokens that texts of the converted file begin with, behind the decoder's first token.
class FirstTokens : public testing::Test {
 protected:
  std::vector<TokenId> Of(const json& generation) {
    seeded_.generation = generation;
    const auto path = seeded_.Convert();
    EXPECT_TRUE(path.ok()) << path.error().message;
    if (!path.ok()) return {};
    const auto file = formats::GgufFile::Open(*path);
    EXPECT_TRUE(file.ok()) << file.error().message;
    const auto settings = ReadModelGeneration(*file);
    EXPECT_TRUE(settings.ok()) << settings.error().message;
    EXPECT_THAT(settings->options.suppress, ElementsAre(5, 6));
    EXPECT_THAT(settings->options.begin_suppress, ElementsAre(7));
    EXPECT_EQ(settings->options.max_length, 20);
    return settings->first_tokens;
  }

  static json Generation(json more) {
    json all = {{"suppress_tokens", {5, 6}}, {"begin_suppress_tokens", {7}}, {"max_length", 20}};
    all.update(more);
    return all;
  }

  SeededModel seeded_{std::string(kSeededSpeech) + "whisper-stacks"};
};

// As _retrieve_init_tokens of transformers 4.57.1 has them; SpeechProgram compares some with it.
TEST_F(FirstTokens, AreThoseOfTheFolder) {
  EXPECT_THAT(Of(Generation(json::object())), IsEmpty());
  EXPECT_THAT(Of(Generation({{"forced_decoder_ids", {{1, 20}, {2, 21}}}})), ElementsAre(20, 21));
  EXPECT_THAT(
      Of(Generation({{"forced_decoder_ids", {{1, 20}, {2, 21}}}, {"no_timestamps_token_id", 22}})),
      ElementsAre(20, 21, 22));
  EXPECT_THAT(Of(Generation({{"forced_decoder_ids", {{1, 22}}}, {"no_timestamps_token_id", 22}})),
              ElementsAre(22));
  EXPECT_THAT(Of(Generation({{"no_timestamps_token_id", 22}})), ElementsAre(22));
  EXPECT_THAT(Of(Generation({{"forced_decoder_ids", {{1, nullptr}, {2, 21}}}})), ElementsAre(21));
  seeded_.config["forced_decoder_ids"] = {{1, 23}};
  EXPECT_THAT(Of(Generation(json::object())), ElementsAre(23));
}

TEST_F(FirstTokens, MayLeaveTheLanguageOpen) {
  const json languages = {{"<|en|>", 20}, {"<|de|>", 30}};
  const json tasks = {{"transcribe", 21}, {"translate", 22}};
  const auto of = [&](json more) {
    more["lang_to_id"] = languages;
    more["task_to_id"] = tasks;
    more["no_timestamps_token_id"] = 23;
    return Of(Generation(more));
  };
  EXPECT_THAT(of(json::object()), ElementsAre(kOpenLanguage, 23));
  EXPECT_THAT(of({{"forced_decoder_ids", {{1, nullptr}, {2, 21}}}}),
              ElementsAre(kOpenLanguage, 21, 23));
  EXPECT_THAT(of({{"task", "translate"}}), ElementsAre(kOpenLanguage, 22, 23));
  for (const char* name : {"<|de|>", "de", "german", "German"}) {
    EXPECT_THAT(of({{"language", name}, {"forced_decoder_ids", {{1, 20}}}}),
                ElementsAre(30, 21, 23));
  }
  EXPECT_THAT(of({{"language", "en"}, {"task", "translate"}}), ElementsAre(20, 22, 23));
}

// The settings of generation count more than those of the model, whose class has 50257 there.
TEST_F(FirstTokens, StandBehindTheOneOfGeneration) {
  for (const auto& [generation, expected] :
       std::vector<std::pair<json, TokenId>>{{json::object(), 2},
                                             {{{"decoder_start_token_id", 11}}, 11},
                                             {{{"decoder_start_token_id", nullptr}}, 2}}) {
    seeded_.generation = generation;
    const auto model = seeded_.Open();
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->decoder_start(), expected);
  }
  seeded_.generation = {{"decoder_start_token_id", 64}};
  EXPECT_THAT(seeded_.Message(), HasSubstr("decoder_start_token_id"));
}

TEST_F(FirstTokens, AreChecked) {
  for (const json& wrong : {json(5), json({5}), json({{1, 2, 3}}), json({{2, 20}}), json({{1, -3}}),
                            json({{1, 64}}), json({{1, "en"}}), json({{1, 20}, {3, 21}})}) {
    seeded_.generation = {{"forced_decoder_ids", wrong}};
    EXPECT_THAT(seeded_.Message(), HasSubstr("forced_decoder_ids")) << wrong.dump();
  }
  for (const auto& [key, wrong] :
       std::vector<std::pair<const char*, json>>{{"lang_to_id", {1}},
                                                 {"lang_to_id", {{"<|en|>", 64}}},
                                                 {"task_to_id", {{"a", -1}}},
                                                 {"language", "de"},
                                                 {"language", 5},
                                                 {"task", "sing"}}) {
    seeded_.generation = {{key, wrong}};
    EXPECT_THAT(seeded_.Message(), HasSubstr(key)) << wrong.dump();
  }
}

}  // namespace
}  // namespace kvant::test
