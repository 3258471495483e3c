// CTranslate2 folders as its own converter writes them (make_ctranslate2_folders.py): the converted
// models compute what CTranslate2 computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/generate/model_generation.h"
#include "formats/gguf.h"
#include "kvant/model_defaults.h"
#include "tests/engine/convert/ctranslate2_copy.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

using formats::GgufFile;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// The logarithm of a token's share of all that may follow.
double LogProbability(std::span<const float> logits, TokenId token, TokenId never) {
  double largest = -1e30;
  for (const float logit : logits) largest = std::max(largest, double{logit});
  double sum = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (static_cast<TokenId>(i) != never) sum += std::exp(double{logits[i]} - largest);
  }
  return double{logits[static_cast<size_t>(token)]} - largest - std::log(sum);
}

class CTranslate2Translators : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Kinds, CTranslate2Translators,
                         testing::Values("marian", "m2m100", "nllb", "bart", "mbart", "t5",
                                         "t5-gated", "t5-umt5"),
                         [](const auto& kind) {
                           std::string name = kind.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

void ExpectScores(const CTranslate2Copy& copy) {
  const auto model = OpenConverted(copy);
  ASSERT_NE(model, nullptr);
  const auto runner = OpenRunner(model, Options(KvType::kF32, 1));
  ASSERT_NE(runner, nullptr);
  const json& given = copy.given();
  const auto source = given["source"].get<std::vector<TokenId>>();
  const auto target = given["target"].get<std::vector<TokenId>>();
  const auto scores = given["scores"].get<std::vector<double>>();
  const TokenId start = given.contains("start") ? given["start"].get<TokenId>()
                                                : static_cast<TokenId>(*model->decoder_start());
  const auto sequence = runner->NewSequenceOf(source);
  ASSERT_TRUE(sequence.ok()) << sequence.error().message;
  std::vector<TokenId> tokens = {start};
  tokens.insert(tokens.end(), target.begin(), target.end());
  const std::vector<float> logits = LogitsOfAll(*runner, *sequence, tokens, tokens.size());
  const size_t vocab = logits.size() / tokens.size();
  // The token of zeros that is not in CTranslate2's list.
  const bool adds_token = vocab > copy.ReadJson("shared_vocabulary.json").size();
  const TokenId never = adds_token ? static_cast<TokenId>(vocab - 1) : -1;
  ASSERT_EQ(scores.size(), tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const TokenId next = i < target.size() ? target[i] : source.back();
    const std::span<const float> row(logits.data() + i * vocab, vocab);
    // Scores have six digits behind the point; T5's are sums of unscaled products.
    EXPECT_NEAR(LogProbability(row, next, never), scores[i], 2e-5) << i;
  }
}

TEST_P(CTranslate2Translators, ScoreAsCTranslate2) { ExpectScores(CTranslate2Copy(GetParam())); }

TEST_P(CTranslate2Translators, NeedNoAliases) {
  const CTranslate2Copy copy(GetParam());
  copy.WeightsWithoutAliases().Write(copy / "model.bin");
  ExpectScores(copy);
}

class CTranslate2Speech : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Kinds, CTranslate2Speech, testing::Values("whisper", "whisper-english"),
                         [](const auto& kind) {
                           std::string name = kind.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(CTranslate2Speech, LogitsAreCTranslate2s) {
  const CTranslate2Copy copy(GetParam());
  const auto model = OpenConverted(copy);
  ASSERT_NE(model, nullptr);
  const auto runner = OpenRunner(model, Options(KvType::kF32, 1));
  ASSERT_NE(runner, nullptr);
  const json& given = copy.given();
  const auto shape = given["frames"].get<std::vector<int64_t>>();
  std::vector<float> frames;
  for (int64_t i = 0; i < shape[0] * shape[1]; ++i) {
    frames.push_back(static_cast<float>((i * 7919) % 2001 - 1000) / 1000);
  }
  const auto sequence = runner->NewSequenceOfFrames(frames);
  ASSERT_TRUE(sequence.ok()) << sequence.error().message;
  auto tokens = given["first"].get<std::vector<TokenId>>();
  const size_t first = tokens.size() - 1;
  const auto target = given["target"].get<std::vector<TokenId>>();
  const auto& rows = given["logits"];
  tokens.insert(tokens.end(), target.begin(), target.begin() + std::ssize(rows) - 1);
  const std::vector<float> logits = LogitsOfAll(*runner, *sequence, tokens, tokens.size());
  const size_t vocab = logits.size() / tokens.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto expected = rows[i].get<std::vector<float>>();
    ASSERT_EQ(expected.size(), vocab);
    for (size_t id = 0; id < vocab; ++id) {
      if (expected[id] < -1e4f) continue;  // suppressed there
      // Logits have four digits behind the point.
      EXPECT_NEAR(logits[(first + i) * vocab + id], expected[id], 2e-4) << i << ", " << id;
    }
  }
}

TEST(CTranslate2Folders, TextsOfSpeechBeginAsTheirListSays) {
  const CTranslate2Copy several("whisper");
  const auto path = several.Convert();
  ASSERT_TRUE(path.ok()) << path.error().message;
  const auto file = GgufFile::Open(*path);
  ASSERT_TRUE(file.ok());
  const json list = several.ReadJson("vocabulary.json");
  const auto id = [&](const char* text) {
    return static_cast<TokenId>(std::find(list.begin(), list.end(), text) - list.begin());
  };
  const auto settings = ReadModelGeneration(*file);
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  EXPECT_THAT(settings->first_tokens,
              ElementsAre(kOpenLanguage, id("<|transcribe|>"), id("<|notimestamps|>")));
  EXPECT_THAT(settings->options.suppress, ElementsAre(1, 2, 7));
  EXPECT_THAT(settings->options.begin_suppress, ElementsAre(5));
  const auto languages = file->GetArray("whisper.languages", formats::GgufType::kInt32);
  ASSERT_TRUE(languages.ok());
  EXPECT_EQ((*languages)->count, 3u);

  const auto english = GgufFile::Open(*CTranslate2Copy("whisper-english").Convert());
  ASSERT_TRUE(english.ok());
  EXPECT_THAT(ReadModelGeneration(*english)->first_tokens,
              ElementsAre(static_cast<TokenId>(list.size()) - 8));
  EXPECT_EQ(*english->GetArray("whisper.languages", formats::GgufType::kInt32), nullptr);
}

// The order of the list says what tokens were made of. These folders have no other tokenizer.
TEST(CTranslate2Folders, MergesOfSpeechFollowFromTheList) {
  const CTranslate2Copy copy("whisper");
  const auto file = GgufFile::Open(*copy.Convert());
  ASSERT_TRUE(file.ok());
  const auto merges = file->GetArray("tokenizer.ggml.merges", formats::GgufType::kString);
  ASSERT_TRUE(merges.ok());
  EXPECT_THAT((*merges)->strings, ElementsAre("t h", "th e", "Ġ k", "Ġk i", "Ġki n", "Ġkin g"));
  json list = copy.ReadJson("vocabulary.json");
  std::swap(list[256], list[257]);
  copy.Write("vocabulary.json", list.dump());
  EXPECT_THAT(copy.Message(), HasSubstr("token 256, \"the\", is not made of two tokens before it"));
}

// 8-bit and 16-bit weights are the float32 nearest to integer / scale.
TEST(CTranslate2Folders, IntegersBecomeTheirQuotients) {
  for (const char* name : {"marian", "t5"}) {
    const CTranslate2Copy copy(name);
    const auto path = copy.Convert();
    ASSERT_TRUE(path.ok()) << path.error().message;
    const auto file = GgufFile::Open(*path);
    ASSERT_TRUE(file.ok());
    CTranslate2Builder weights = copy.Weights();
    const std::string from = "decoder/layer_0/self_attention/linear_0/weight";
    const CTranslate2Variable integers = weights[from];
    const CTranslate2Variable scales = weights[from + "_scale"];
    const size_t columns = integers.shape[1];
    const size_t rows = integers.shape[0] / 3;
    const auto* keys = file->FindTensor("dec.blk.0.attn_k.weight");
    ASSERT_NE(keys, nullptr);
    ASSERT_EQ(keys->size_bytes, rows * columns * sizeof(float));
    for (size_t i = 0; i < rows * columns; ++i) {
      const size_t place = rows * columns + i;
      double integer = 0;
      if (integers.type == 1) {
        integer = static_cast<int8_t>(integers.bytes[place]);
      } else {
        int16_t value = 0;
        std::memcpy(&value, integers.bytes.data() + 2 * place, 2);
        integer = value;
      }
      float scale = 0;
      const size_t scale_place = scales.bytes.size() > 4 ? place / columns * 4 : 0;
      std::memcpy(&scale, scales.bytes.data() + scale_place, 4);
      float found = 0;
      std::memcpy(&found, keys->data + i * sizeof(found), sizeof(found));
      EXPECT_EQ(found, static_cast<float>(integer / double{scale})) << name << ", " << i;
    }
  }
}

// The type of a file follows that of the weights; of integers, that of the vectors beside them.
TEST(CTranslate2Folders, HaveANaturalType) {
  for (const auto& [name, type] :
       {std::pair{"bart", "f32"}, std::pair{"mbart", "bf16"}, std::pair{"whisper", "f16"},
        std::pair{"marian", "f32"}, std::pair{"m2m100", "f16"}, std::pair{"t5-umt5", "bf16"}}) {
    TemporaryFolder out;
    const auto summary =
        convert::ConvertFolder(CTranslate2Copy(name).Path(), out / "o.gguf", {.threads = 1});
    ASSERT_TRUE(summary.ok()) << summary.error().message;
    EXPECT_EQ(summary->type, type) << name;
  }
}

// The positions are those of the file, for they may be others than the class computes.
TEST(CTranslate2Folders, PositionsAreThoseOfTheFile) {
  const CTranslate2Copy copy("m2m100");
  CTranslate2Builder weights = copy.Weights();
  CTranslate2Variable& table =
      weights["decoder/position_encodings/encodings"];  // the encoder's, too
  ASSERT_EQ(table.type, 4);                             // F16
  table.bytes.replace(0, 4, CTranslate2Builder::Raw(std::vector<uint16_t>{0x3C00, 0xC000}));
  weights.Write(copy / "model.bin");
  const auto file = GgufFile::Open(*copy.Convert());
  ASSERT_TRUE(file.ok());
  float found[2] = {};
  std::memcpy(found, file->FindTensor("enc.position_embd.weight")->data, sizeof(found));
  EXPECT_EQ(found[0], 1.0f);
  EXPECT_EQ(found[1], -2.0f);
}

// Marian with a vocabulary for each side.
TEST(CTranslate2Folders, TwoVocabulariesHaveTwoEmbeddings) {
  const CTranslate2Copy copy("marian");
  CTranslate2Builder weights = copy.WeightsWithoutAliases();
  CTranslate2Variable& source = weights["encoder/embeddings_0/weight"];
  source.bytes[0] = static_cast<char>(source.bytes[0] ^ 1);
  weights.Write(copy / "model.bin");
  const std::string list = copy.ReadJson("shared_vocabulary.json").dump();
  std::filesystem::remove(copy / "shared_vocabulary.json");
  copy.Write("source_vocabulary.json", list);
  copy.Write("target_vocabulary.json", list);
  const auto model = OpenConverted(copy);
  ASSERT_NE(model, nullptr);
  const auto* own = model->file().FindTensor("enc.token_embd.weight");
  const auto* target = model->file().FindTensor("token_embd.weight");
  ASSERT_NE(own, nullptr);
  ASSERT_EQ(own->size_bytes, target->size_bytes);
  EXPECT_NE(std::memcmp(own->data, target->data, sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(own->data + sizeof(float), target->data + sizeof(float),
                        own->size_bytes - sizeof(float)),
            0);
  // The row of the token that begins texts, which is never written.
  const std::vector<std::byte> zeros(8 * sizeof(float));
  EXPECT_EQ(std::memcmp(own->data + own->size_bytes - zeros.size(), zeros.data(), zeros.size()), 0);
  const auto settings = ReadModelGeneration(model->file());
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  EXPECT_THAT(settings->options.suppress, ElementsAre(*model->decoder_start()));
  EXPECT_EQ(*model->decoder_start(), own->dims[1] - 1);
}

}  // namespace
}  // namespace kvant::test
