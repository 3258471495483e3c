// The trained T5 that comes with kvant, which writes number words as digits and back: logits, texts
// of searches and their scores as transformers has them (models/number-words/reference.py), and
// what fewer bits of weights and caches leave of its answers.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cpu/dispatch.h"
#include "formats/npy.h"
#include "kvant/beam_generator.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

using nlohmann::json;

class NumberWords : public testing::Test {
 protected:
  static std::string PathOf(const std::string& file) {
    return SourcePath("models/number-words/" + file);
  }
  static std::string Master() { return PathOf("number-words-bf16.gguf"); }
  static std::string Small() { return PathOf("number-words.gguf"); }

  void SetUp() override {
    std::ifstream file(PathOf("reference/cases.jsonl"));
    for (std::string line; std::getline(file, line);) cases_.push_back(json::parse(line));
    ASSERT_EQ(cases_.size(), 19u);
  }

  static std::shared_ptr<const Model> Open(const std::string& path, const std::string& isa = "") {
    ModelOptions options = OwnGemm();
    options.isa = isa;
    auto model = Model::Open(path, options);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() ? *model : nullptr;
  }

  static SessionOptions Session(KvType type, int64_t sequences) {
    SessionOptions options = Options(type, sequences);
    options.context = 40;
    options.strict = true;
    return options;
  }

  // The logits behind each of the tokens that the reference gave to the decoder, for all cases.
  std::vector<float> Logits(const std::shared_ptr<const Model>& model, KvType type) const {
    const auto runner = OpenRunner(model, Session(type, 1));
    std::vector<float> all;
    for (const json& line : cases_) {
      const auto sequence = runner->NewSequenceOf(line["ids"].get<std::vector<TokenId>>());
      EXPECT_TRUE(sequence.ok()) << sequence.error().message;
      if (!sequence.ok()) return {};
      for (const auto token : line["tokens"].get<std::vector<TokenId>>()) {
        ExpectOk(runner->Append(*sequence, {&token, 1}));
        const auto logits = runner->logits(*sequence);
        all.insert(all.end(), logits.begin(), logits.end());
      }
      ExpectOk(runner->FreeSequence(*sequence));
    }
    return all;
  }

  // The hypotheses of each case, searched as Hugging Face's generate searches.
  std::vector<std::vector<BeamHypothesis>> Search(const std::shared_ptr<const Model>& model,
                                                  KvType type, int beams) const {
    std::vector<std::vector<TokenId>> sources;
    for (const json& line : cases_) sources.push_back(line["ids"]);
    const std::vector<std::vector<TokenId>> prompts(cases_.size(), {*model->decoder_start()});
    BeamGenerateOptions options;
    options.search.beams = options.search.num_return = beams;
    options.search.max_length = 40;
    options.search.end_tokens = model->tokenizer().special().end_of_generation;
    options.sources = sources;
    options.parallel = 3;
    const auto runner = OpenRunner(model, Session(type, 3 * beams));
    const auto found = GenerateBeams(*runner, prompts, options);
    EXPECT_TRUE(found.ok()) << found.error().message;
    std::vector<std::vector<BeamHypothesis>> all;
    for (size_t i = 0; found.ok() && i < found->size(); ++i) {
      all.push_back((*found)[i].hypotheses);
    }
    return all;
  }

  std::vector<json> cases_;
};

TEST_F(NumberWords, TokensAreThoseOfSentencePiece) {
  const auto model = Open(Master());
  ASSERT_NE(model, nullptr);
  for (const json& line : cases_) {
    const auto ids = model->tokenizer().Encode(line["source"].get<std::string>(),
                                               {.add_special = true, .parse_special = true});
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, line["ids"].get<std::vector<TokenId>>()) << line["source"];
  }
}

TEST_F(NumberWords, LogitsAreThoseOfTransformersOnEveryInstructionSet) {
  const auto expected = formats::NpyRead(PathOf("reference/logits.npy"));
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    const auto master = Open(Master(), isa.name);
    ASSERT_NE(master, nullptr);
    const std::vector<float> logits = Logits(master, KvType::kF32);
    ASSERT_EQ(logits.size(), expected->values.size());
    EXPECT_LE(MaxDifference(logits, expected->values), 5e-4) << isa.name;
  }
}

TEST_F(NumberWords, SearchesFindTheTextsOfTransformers) {
  const auto model = Open(Master());
  ASSERT_NE(model, nullptr);
  for (size_t which = 0; which < 3; ++which) {
    const int beams = cases_[0]["searches"][which]["beams"];
    const auto found = Search(model, KvType::kF32, beams);
    ASSERT_EQ(found.size(), cases_.size());
    for (size_t i = 0; i < cases_.size(); ++i) {
      const json& search = cases_[i]["searches"][which];
      ASSERT_EQ(found[i].size(), search["texts"].size()) << i;
      for (size_t k = 0; k < found[i].size(); ++k) {
        EXPECT_EQ(found[i][k].ids, search["texts"][k].get<std::vector<TokenId>>())
            << cases_[i]["source"] << ", " << k << " of " << beams;
        if (beams == 1) continue;
        EXPECT_NEAR(found[i][k].score, search["scores"][k], 2e-4);
      }
    }
  }
}

TEST_F(NumberWords, EightBitWeightsAndCachesGiveTheSameAnswers) {
  const auto master = Open(Master());
  const auto small = Open(Small());
  ASSERT_NE(master, nullptr);
  ASSERT_NE(small, nullptr);
  const std::vector<float> exact = Logits(master, KvType::kF32);
  const auto rows = exact.size() / static_cast<size_t>(master->vocab_size());
  EXPECT_LE(MeanDivergence(exact, Logits(small, KvType::kF32), rows), 5e-3);
  EXPECT_LE(MeanDivergence(exact, Logits(small, KvType::kQ8), rows), 5e-3);
  const auto texts = Search(small, KvType::kQ8, 1);
  ASSERT_EQ(texts.size(), cases_.size());
  // The last case is no number.
  for (size_t i = 0; i + 1 < cases_.size(); ++i) {
    EXPECT_EQ(texts[i][0].ids, cases_[i]["searches"][0]["texts"][0].get<std::vector<TokenId>>())
        << cases_[i]["source"];
  }
}

}  // namespace
}  // namespace kvant::test
