// Trained models of the shared folder: exact greedy texts and the logits of another engine at every
// position.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "engine/session.h"
#include "formats/npy.h"
#include "tests/engine/tiny_model.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

SessionOptions F32Cache() {
  SessionOptions options;
  options.k_type = options.v_type = cpu::KvElement::kF32;
  return options;
}

std::vector<TokenId> ReadTokens(const std::string& path) {
  std::ifstream file(path);
  std::vector<TokenId> tokens;
  std::string word;
  while (std::getline(file, word, ',')) tokens.push_back(std::stoi(word));
  return tokens;
}

std::string GreedyText(const std::string& path, std::vector<TokenId> prompt, int count) {
  auto model = Model::Open(path);
  EXPECT_TRUE(model.ok()) << model.error().message;
  auto session = OpenSession(*model, F32Cache());
  EXPECT_TRUE(session->Append(prompt).ok());
  std::string text;
  for (int i = 0; i < count; ++i) {
    const auto logits = session->logits();
    const TokenId next =
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    text += (*model)->tokenizer().TokenBytes(next, false);
    EXPECT_TRUE(session->Append({&next, 1}).ok());
  }
  return text;
}

const std::vector<TokenId> kOnceUponATime = {1, 80, 147, 201, 282, 57};

TEST(TrainedModels, Stories260kFromBosAlone) {
  const std::string path = SharedPath("models/stories260k/stories260K-f32.v3.gguf");
  KVANT_SKIP_WITHOUT(path);
  const std::string expected =
      " Once upon a time, there was a little girl named Lily. She loved to play outside in the "
      "park. One day, she saw "
      "a big, red ball. She wanted to play with it, but it was too high.";
  EXPECT_EQ(GreedyText(path, {1}, 120).substr(0, expected.size()), expected);
}

TEST(TrainedModels, TinyStoriesAfterOnceUponATime) {
  const std::string path = SharedPath("models/tinystories-656k/TinyStories-656K-f32.gguf");
  KVANT_SKIP_WITHOUT(path);
  const std::string expected =
      ", a little girl named Lily lived in a small house with her mom, dad, and her dog, Spot, "
      "Spot, loved to play all "
      "day. One day, Lily saw a small bird on the ground. She picked it up and tried to reach the "
      "bird and see what it "
      "was.";
  EXPECT_EQ(GreedyText(path, kOnceUponATime, 100).substr(0, expected.size()), expected);
}

TEST(TrainedModels, AWindowOf32PartsAfterOnTheGround) {
  const std::string path =
      SharedPath("models/tinystories-656k/TinyStories-656K-phi3-swa32-f32.gguf");
  KVANT_SKIP_WITHOUT(path);
  const std::string expected =
      "a small bird on the ground. The bird was lost and wanted to play with it.";
  EXPECT_NE(GreedyText(path, kOnceUponATime, 100).find(expected), std::string::npos);
}

struct GoldenCase {
  const char* name;
  const char* model;
  const char* tokens;
  double max_difference;  // 0 = judged by divergence
  double mean_divergence;
};

void PrintTo(const GoldenCase& value, std::ostream* out) { *out << value.name; }

class Golden : public testing::TestWithParam<GoldenCase> {};

// KL(p || q) of two rows of logits, in double precision.
double Divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  const auto log_total = [](std::span<const float> logits) {
    const double highest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
    double total = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit) - highest);
    return highest + std::log(total);
  };
  const double p_total = log_total(p_logits);
  const double q_total = log_total(q_logits);
  double divergence = 0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = static_cast<double>(p_logits[i]) - p_total;
    const double log_q = static_cast<double>(q_logits[i]) - q_total;
    divergence += std::exp(log_p) * (log_p - log_q);
  }
  return divergence;
}

TEST_P(Golden, LogitsAtEveryPosition) {
  const GoldenCase& golden = GetParam();
  const std::string path = SharedPath(std::string("models/") + golden.model);
  KVANT_SKIP_WITHOUT(path);
  const std::vector<TokenId> tokens =
      ReadTokens(SharedPath(std::string("models/golden/") + golden.tokens));
  auto expected =
      formats::NpyRead(SharedPath(std::string("models/golden/") + golden.name + ".npy"));
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  auto model = Model::Open(path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  auto session = OpenSession(*model, F32Cache());
  const std::vector<float> logits = AllLogits(*session, tokens, tokens.size());
  ASSERT_EQ(logits.size(), expected->values.size());
  if (golden.max_difference > 0) {
    EXPECT_LE(MaxDifference(logits, expected->values), golden.max_difference);
  }
  const size_t vocab = logits.size() / tokens.size();
  double sum = 0;
  for (size_t t = 0; t < tokens.size(); ++t) {
    sum += Divergence(std::span(expected->values).subspan(t * vocab, vocab),
                      std::span(logits).subspan(t * vocab, vocab));
  }
  EXPECT_LE(sum / static_cast<double>(tokens.size()), golden.mean_divergence);
  RecordProperty("mean_divergence", std::to_string(sum / static_cast<double>(tokens.size())));
}

INSTANTIATE_TEST_SUITE_P(
    LlamaCpp, Golden,
    testing::Values(GoldenCase{"stories260K-f32", "stories260k/stories260K-f32.v3.gguf",
                               "stories260K.tokens", 1e-3, 1e-6},
                    GoldenCase{"TinyStories-656K-f32", "tinystories-656k/TinyStories-656K-f32.gguf",
                               "TinyStories-656K.tokens", 1e-3, 1e-6},
                    GoldenCase{"TinyStories-656K-phi3-swa32-f32",
                               "tinystories-656k/TinyStories-656K-phi3-swa32-f32.gguf",
                               "TinyStories-656K.tokens", 1e-3, 1e-6},
                    GoldenCase{"TinyStories-656K-Q8_0",
                               "tinystories-656k/TinyStories-656K-Q8_0.gguf",
                               "TinyStories-656K.tokens", 0, 2e-3},
                    GoldenCase{"TinyStories-656K-Q4_0",
                               "tinystories-656k/TinyStories-656K-Q4_0.gguf",
                               "TinyStories-656K.tokens", 0, 5e-3}),
    [](const auto& info) {
      std::string name = info.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace kvant::test
