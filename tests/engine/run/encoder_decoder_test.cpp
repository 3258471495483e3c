// Encoder-decoders: sources, their cache, and logits as transformers computes them. Names begin
// with the number of the check.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cpu/dispatch.h"
#include "cpu/kv_format_list.h"
#include "formats/npy.h"
#include "kvant/beam_generator.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

class EncoderDecoders : public testing::TestWithParam<std::string> {
 protected:
  EncoderDecoders() : seeded_(kSeededPairs + GetParam()) {}

  static std::vector<float> Numbers(const std::string& path) {
    const auto read = formats::NpyRead(path);
    EXPECT_TRUE(read.ok()) << read.error().message;
    return read.ok() ? read->values : std::vector<float>();
  }

  SeededModel seeded_;
};

INSTANTIATE_TEST_SUITE_P(Reference, EncoderDecoders,
                         testing::ValuesIn(SeededModelNames(kSeededPairs)), [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// `part` of the largest expected magnitude, or of 1 where that is larger.
double Limit(double part, std::span<const float> expected) {
  double largest = 1;
  for (const float number : expected) largest = std::max(largest, std::abs(double{number}));
  return part * largest;
}

TEST_P(EncoderDecoders, EncoderAndLogitsAreThoseOfTransformers) {
  const std::vector<TokenId> source = seeded_.Source();
  const std::vector<TokenId> tokens = seeded_.Tokens();
  const std::vector<float> encoded = Numbers(seeded_.EncodedPath());
  const std::vector<float> expected = Numbers(seeded_.LogitsPath());
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    ModelOptions options;
    options.isa = isa.name;
    const auto model = seeded_.Open(options);
    ASSERT_NE(model, nullptr);
    for (const size_t piece : {size_t{1}, size_t{7}, tokens.size()}) {
      SessionOptions session = Options(KvType::kF32, 2);
      const auto runner = OpenRunner(model, session);
      ASSERT_NE(runner, nullptr);
      std::vector<float> rows;
      const auto id = runner->Encode(source, {.rows = [&](std::span<const float> found) -> Status {
                                       rows.assign(found.begin(), found.end());
                                       return {};
                                     }});
      ASSERT_TRUE(id.ok()) << id.error().message;
      EXPECT_LE(MaxDifference(rows, encoded), Limit(1e-5, encoded)) << isa.name;
      const auto sequence = runner->NewSequence(*id);
      ASSERT_TRUE(sequence.ok()) << sequence.error().message;
      const std::vector<float> logits = LogitsOfAll(*runner, *sequence, tokens, piece);
      ASSERT_EQ(logits.size(), expected.size());
      // T5 does not scale its scores, so roundings of large ones weigh more than elsewhere.
      EXPECT_LE(MaxDifference(logits, expected), Limit(3e-5, expected))
          << isa.name << ", " << piece;
    }
  }
}

// Folders of translators may have another vocabulary, but not a broken one.
TEST(EncoderDecoderFolders, FilesOfPiecesMustBeOnes) {
  for (const auto& [name, file] :
       {std::pair{"marian", "source.spm"}, std::pair{"m2m100", "sentencepiece.bpe.model"}}) {
    SeededModel seeded(std::string(kSeededPairs) + name);
    EXPECT_EQ(seeded.Message(), "accepted");
    seeded.vocabulary_file = file;
    EXPECT_NE(seeded.Message(), "accepted");
  }
}

BeamOptions SearchOf(const nlohmann::json& line) {
  const nlohmann::json& settings = line["settings"];
  BeamOptions search;
  search.beams = settings["num_beams"];
  search.max_length = line["max_length"];
  search.end_tokens = {line["eos"].get<TokenId>()};
  search.num_return = settings.value("num_return_sequences", 1);
  search.min_length = settings.value("min_length", 0);
  search.no_repeat_ngram = settings.value("no_repeat_ngram_size", 0);
  search.repetition_penalty = settings.value("repetition_penalty", 1.0f);
  search.length_penalty = settings.value("length_penalty", 1.0f);
  search.renormalize = settings.value("renormalize_logits", false);
  search.bad_words = settings.value("bad_words_ids", std::vector<std::vector<TokenId>>());
  search.suppress = settings.value("suppress_tokens", std::vector<TokenId>());
  search.begin_suppress = settings.value("begin_suppress_tokens", std::vector<TokenId>());
  if (settings.contains("forced_bos_token_id")) {
    search.forced_bos = settings["forced_bos_token_id"].get<TokenId>();
    search.forced_eos = {settings["forced_eos_token_id"].get<TokenId>()};
  }
  if (settings.contains("early_stopping")) {
    const nlohmann::json& early = settings["early_stopping"];
    search.early_stopping = !early.is_boolean() ? EarlyStopping::kNever
                            : early.get<bool>() ? EarlyStopping::kTrue
                                                : EarlyStopping::kFalse;
  }
  return search;
}

TEST_P(EncoderDecoders, SearchesFindTheTextsOfTransformers) {
  const auto model = seeded_.Open();
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> source = seeded_.Source();
  const auto runner = OpenRunner(model, Options(KvType::kF32, 5));
  std::ifstream file(seeded_.SearchesPath());
  size_t count = 0;
  for (std::string text; std::getline(file, text); ++count) {
    const auto line = nlohmann::json::parse(text);
    const auto length = line["source"].get<size_t>();
    const std::vector<std::vector<TokenId>> sources = {
        {source.begin(), source.begin() + static_cast<std::ptrdiff_t>(length)}};
    const std::vector<std::vector<TokenId>> prompts = {{line["start"].get<TokenId>()}};
    BeamGenerateOptions options;
    options.search = SearchOf(line);
    options.sources = sources;
    const auto found = GenerateBeams(*runner, prompts, options);
    ASSERT_TRUE(found.ok()) << found.error().message;
    const auto& hypotheses = found->front().hypotheses;
    ASSERT_EQ(hypotheses.size(), line["texts"].size()) << text;
    for (size_t i = 0; i < hypotheses.size(); ++i) {
      EXPECT_EQ(hypotheses[i].ids, line["texts"][i].get<std::vector<TokenId>>()) << text;
      if (line["scores"].empty()) continue;
      const double score = line["scores"][i];
      EXPECT_NEAR(hypotheses[i].score, score, 1e-4 * std::max(1.0, std::abs(score) / 10)) << text;
    }
  }
  EXPECT_EQ(count, 39u);
}

}  // namespace
}  // namespace kvant::test
