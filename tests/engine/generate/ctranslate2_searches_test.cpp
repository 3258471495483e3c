// Beam search against CTranslate2, texts and scores: its Translator's on five encoder-decoders,
// with prefixes (tests/reference/make_ctranslate2_searches.py), and its Generator's on two
// decoders, with and without the prompt in the result (make_ctranslate2_generations.py). Lengths,
// patience, penalties and banned sequences vary. The scripts name the pinned version.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kvant/beam_generator.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

using nlohmann::json;

constexpr TokenId kUnknown = 3;  // of the converted models

class CTranslate2Searches : public testing::TestWithParam<const char*> {
 protected:
  std::string Path() const {
    return SourcePath(std::string("tests/reference/seeded/") + kSeededPairs + GetParam() +
                      ".ct2.jsonl");
  }

  // Lengths of CTranslate2 count the prefix, and not the decoder's first token.
  static BeamOptions SearchOf(const json& line) {
    const json& settings = line["settings"];
    BeamOptions search;
    search.scoring = BeamScoring::kCt2;
    search.beams = settings["beam_size"];
    search.end_tokens = {line["end"].get<TokenId>()};
    search.max_length = settings["max_decoding_length"].get<int64_t>() + 1;
    search.min_length = settings.value("min_decoding_length", 1) + 1;
    search.num_return = settings.value("num_hypotheses", 1);
    search.length_penalty = settings.value("length_penalty", 1.0f);
    search.patience = settings.value("patience", 1.0f);
    search.repetition_penalty = settings.value("repetition_penalty", 1.0f);
    search.no_repeat_ngram = settings.value("no_repeat_ngram_size", 0);
    search.bad_words = settings.value("suppress_sequences", std::vector<std::vector<TokenId>>());
    if (settings.value("disable_unk", false)) search.suppress = {kUnknown};
    return search;
  }

  // The text as CTranslate2 returns it: with the prefix, and the end token only if it was asked
  // for.
  static std::vector<TokenId> TextOf(const json& line, const std::vector<TokenId>& prefix,
                                     const BeamHypothesis& found) {
    std::vector<TokenId> text = prefix;
    text.insert(text.end(), found.ids.begin(), found.ids.end());
    const bool with_end = line["settings"].value("return_end_token", false);
    if (found.ended && !with_end) text.pop_back();
    return text;
  }
};

INSTANTIATE_TEST_SUITE_P(Seeded, CTranslate2Searches,
                         testing::Values("t5", "t5-gated", "bart", "marian", "m2m100"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(CTranslate2Searches, FindTheSameTextsAndScores) {
  SeededModel seeded(std::string(kSeededPairs) + GetParam());
  std::ifstream file(Path());
  std::vector<json> lines;
  for (std::string text; std::getline(file, text);) lines.push_back(json::parse(text));
  ASSERT_EQ(lines.size(), 45u);
  for (const auto& [key, value] : lines[0]["changes"].items()) seeded.config[key] = value;
  const auto model = seeded.Open();
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> tokens = seeded.Source();
  const auto runner = OpenRunner(model, Options(KvType::kF32, 5));
  for (const json& line : lines) {
    const auto length = line["source"].get<std::ptrdiff_t>();
    const std::vector<std::vector<TokenId>> sources = {{tokens.begin(), tokens.begin() + length}};
    const auto prefix = line["settings"].value("target_prefix", std::vector<TokenId>());
    std::vector<std::vector<TokenId>> prompts = {{line["start"].get<TokenId>()}};
    prompts[0].insert(prompts[0].end(), prefix.begin(), prefix.end());
    BeamGenerateOptions options;
    options.search = SearchOf(line);
    options.sources = sources;
    const auto found = GenerateBeams(*runner, prompts, options);
    ASSERT_TRUE(found.ok()) << found.error().message << "\n" << line;
    const auto& hypotheses = found->front().hypotheses;
    ASSERT_EQ(hypotheses.size(), line["texts"].size()) << line;
    for (size_t i = 0; i < hypotheses.size(); ++i) {
      EXPECT_EQ(TextOf(line, prefix, hypotheses[i]), line["texts"][i].get<std::vector<TokenId>>())
          << i << " " << line;
      const double score = line["scores"][i];
      EXPECT_NEAR(hypotheses[i].score, score, 1e-4 * std::max(1.0, std::abs(score) / 10)) << line;
    }
  }
}

// A prompt in the result is a part of the text behind its first token; else it is before the text.
BeamOptions GenerationOf(const json& line) {
  const json& settings = line["settings"];
  BeamOptions search;
  search.scoring = BeamScoring::kCt2;
  search.ct2_prompt_in_result = settings["include_prompt_in_result"];
  search.beams = settings["beam_size"];
  search.end_tokens = {line["end"].get<TokenId>()};
  const auto prompt = search.ct2_prompt_in_result ? 1 : std::ssize(line["prompt"]);
  search.max_length = settings["max_length"].get<int64_t>() + prompt;
  search.min_length = settings.value("min_length", 0) + prompt;
  search.num_return = settings.value("num_hypotheses", 1);
  search.length_penalty = settings.value("length_penalty", 1.0f);
  search.patience = settings.value("patience", 1.0f);
  search.repetition_penalty = settings.value("repetition_penalty", 1.0f);
  search.no_repeat_ngram = settings.value("no_repeat_ngram_size", 0);
  search.bad_words = settings.value("suppress_sequences", std::vector<std::vector<TokenId>>());
  return search;
}

class CTranslate2Generations : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Seeded, CTranslate2Generations, testing::Values("gpt2", "gptneox"));

TEST_P(CTranslate2Generations, FindTheSameTextsAndScores) {
  SeededModel seeded(GetParam());
  std::ifstream file(
      SourcePath(std::string("tests/reference/seeded/") + GetParam() + ".ct2.jsonl"));
  const auto model = seeded.Open();
  ASSERT_NE(model, nullptr);
  const auto runner = OpenRunner(model, Options(KvType::kF32, 5));
  int searches = 0;
  for (std::string text; std::getline(file, text); ++searches) {
    const json line = json::parse(text);
    const auto prompt = line["prompt"].get<std::vector<TokenId>>();
    BeamGenerateOptions options;
    options.search = GenerationOf(line);
    const auto found = GenerateBeams(*runner, {&prompt, 1}, options);
    ASSERT_TRUE(found.ok()) << found.error().message << "\n" << line;
    const auto& hypotheses = found->front().hypotheses;
    ASSERT_EQ(hypotheses.size(), line["texts"].size()) << line;
    for (size_t i = 0; i < hypotheses.size(); ++i) {
      std::vector<TokenId> ids = hypotheses[i].ids;
      if (hypotheses[i].ended && !line["settings"].value("return_end_token", false)) ids.pop_back();
      if (options.search.ct2_prompt_in_result)
        ids.insert(ids.begin(), prompt.begin(), prompt.end());
      EXPECT_EQ(ids, line["texts"][i].get<std::vector<TokenId>>()) << i << " " << line;
      const double score = line["scores"][i];
      EXPECT_NEAR(hypotheses[i].score, score, 1e-4 * std::max(1.0, std::abs(score) / 10)) << line;
    }
  }
  EXPECT_EQ(searches, 66);
}

}  // namespace
}  // namespace kvant::test
