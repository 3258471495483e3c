// The two models of characters that come with kvant, one of convolutions and one of delta nets:
// what training has made of their states is quantized, saved, rewound and searched here.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "cpu/dispatch.h"
#include "engine/quantize/quantize.h"
#include "engine/quantize/recipe.h"
#include "formats/npy.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/generate/beam_requests.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

class TrainedToys : public testing::TestWithParam<std::string> {
 protected:
  static std::string PathOf(const std::string& file) {
    return SourcePath("models/" + GetParam() + "/" + file);
  }
  static std::string Master() { return PathOf(GetParam() + "-bf16.gguf"); }
  static std::string Small() { return PathOf(GetParam() + ".gguf"); }

  static std::shared_ptr<const Model> Open(const std::string& path, const std::string& isa = "") {
    ModelOptions options = OwnGemm();
    options.isa = isa;
    auto model = Model::Open(path, options);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() ? *model : nullptr;
  }

  static SessionOptions Exact() {
    SessionOptions options = Options(KvType::kF32, 1);
    options.context = 512;
    options.strict = true;
    return options;
  }

  // Held-out text: 400 bytes that the model was not trained on.
  static std::vector<TokenId> Text() { return ReadTokenList(PathOf("reference/tokens.txt")); }

  static std::vector<float> Logits(const std::shared_ptr<const Model>& model) {
    return AllLogits(*OpenSession(model, Exact()), Text(), 100);
  }

  // The rows that the reference holds.
  static std::vector<float> SelectRows(const std::vector<float>& all) {
    std::vector<float> rows;
    const auto vocab = static_cast<int64_t>(all.size() / Text().size());
    for (const TokenId row : ReadTokenList(PathOf("reference/rows.txt"))) {
      rows.insert(rows.end(), all.begin() + row * vocab, all.begin() + (row + 1) * vocab);
    }
    return rows;
  }

  // Nats for each token of the text behind the first.
  static double Loss(const std::vector<float>& all) {
    const std::vector<TokenId> text = Text();
    const size_t vocab = all.size() / text.size();
    double sum = 0;
    for (size_t i = 0; i + 1 < text.size(); ++i) {
      const auto row = std::span(all).subspan(i * vocab, vocab);
      sum += LogTotal(row) - static_cast<double>(row[static_cast<size_t>(text[i + 1])]);
    }
    return sum / static_cast<double>(text.size() - 1);
  }

  // The logits after these tokens in a session that has seen no others.
  static std::vector<float> Alone(const std::shared_ptr<const Model>& model,
                                  std::span<const TokenId> tokens) {
    const auto session = OpenSession(model, Exact());
    ExpectOk(session->Append(tokens));
    return {session->logits().begin(), session->logits().end()};
  }

  static std::vector<float> LogitsOf(const Session& session) {
    return {session.logits().begin(), session.logits().end()};
  }
};

INSTANTIATE_TEST_SUITE_P(Models, TrainedToys, testing::Values("lfm2-tiny", "qwen35-tiny"),
                         [](const auto& toy) {
                           std::string name = toy.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(TrainedToys, LogitsAreThoseOfTransformersOnEveryInstructionSet) {
  const auto expected = formats::NpyRead(PathOf("reference/logits.npy"));
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    const auto master = Open(Master(), isa.name);
    ASSERT_NE(master, nullptr);
    EXPECT_LE(MaxDifference(SelectRows(Logits(master)), expected->values), 2e-4) << isa.name;
  }
}

// A byte has 8 bits, and letters by their frequency alone take about 4.6 in English.
TEST_P(TrainedToys, LearnedAndLoseLittleInFewerBits) {
  const TemporaryFolder folder;
  const auto file = formats::GgufFile::Open(Master());
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::vector<float> base = Logits(Open(Master()));
  const double loss = Loss(base);
  EXPECT_LT(loss / std::log(2.0), 4.0);
  const std::map<std::string, double> divergence_max = {
      {"Q8_0", 1e-3}, {"Q6_K", 4e-3}, {"Q5_K_M", 1e-2}, {"Q4_K_M", 3e-2}};
  for (const auto& [type, most] : divergence_max) {
    quantize::PlanOptions options;
    options.recipe = quantize::FindRecipe(type);
    const auto plan = quantize::PlanQuantization(*file, options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto written = quantize::WriteQuantized(*file, *plan, folder / type, {});
    ASSERT_TRUE(written.ok()) << written.error().message;
    const std::vector<float> logits = Logits(Open(folder / type));
    EXPECT_LE(MeanDivergence(base, logits, Text().size()), most) << type;
    EXPECT_NEAR(Loss(logits), loss, most) << type;
    if (type == "Q8_0") {
      EXPECT_EQ(logits, Logits(Open(Small()))) << "the file beside the master is another";
    }
  }
}

TEST_P(TrainedToys, SavedSessionsGoOnWithTheSameBits) {
  const TemporaryFolder folder;
  const auto model = Open(Small());
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> text = Text();
  const auto first = OpenSession(model, Exact());
  ExpectOk(first->Append(std::span(text).first(150)));
  ExpectOk(first->Save(folder / "session"));
  const auto second = OpenSession(model, Exact());
  ExpectOk(second->Load(folder / "session"));
  EXPECT_EQ(LogitsOf(*second), LogitsOf(*first));
  for (size_t i = 150; i < 230; ++i) ExpectOk(second->Append(std::span(text).subspan(i, 1)));
  EXPECT_EQ(LogitsOf(*second), Alone(model, std::span(text).first(230)));
}

TEST_P(TrainedToys, ARewoundSessionIsOneThatNeverWentOn) {
  const auto model = Open(Small());
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> text = Text();
  const auto session = OpenSession(model, Exact());
  ExpectOk(session->Append(text));
  for (const int64_t length : {390, 256, 101, 3}) {
    ExpectOk(session->Rewind(length));
    ExpectOk(session->Append({&text[7], 1}));
    std::vector<TokenId> now(text.begin(), text.begin() + length);
    now.push_back(text[7]);
    EXPECT_EQ(LogitsOf(*session), Alone(model, now)) << length;
  }
}

TEST_P(TrainedToys, BeamsAreThoseOfSessionsOfTheirOwn) {
  const auto model = Open(Small());
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> text = Text();
  const std::vector<TokenId> prompt(text.begin(), text.begin() + 40);
  BeamOptions beams = Beams(4, 24);
  beams.end_tokens = model->tokenizer().special().end_of_generation;
  SessionOptions options = OneThread(KvType::kF16, 6);
  options.context = 512;
  const auto runner = OpenRunner(model, options);
  const auto found = Generate(*runner, {prompt}, {.search = beams});
  const auto expected = SearchAlone(model, KvType::kF16, prompt, beams);
  ExpectSameBits(found[0].hypotheses, expected, GetParam());
  // The sum of what the model says about each token, one by one.
  std::vector<TokenId> whole = prompt;
  double sum = 0;
  for (const TokenId id : found[0].hypotheses[0].ids) {
    const std::vector<float> row = Alone(model, whole);
    sum += static_cast<double>(row[static_cast<size_t>(id)]) - LogTotal(row);
    whole.push_back(id);
  }
  double told = 0;
  for (const float log_prob : found[0].hypotheses[0].log_probs)
    told += static_cast<double>(log_prob);
  EXPECT_NEAR(told, sum, 0.05);  // keys and values of 16 bits against 32
}

}  // namespace
}  // namespace kvant::test
