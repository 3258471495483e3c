// Trained models of the shared folder: exact greedy texts and the logits of another engine at every
// position.
#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/kv_format_list.h"
#include "formats/npy.h"
#include "kvant/session.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/tiny_model.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

SessionOptions TrainedOptions() {
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
  return options;
}

std::string GreedyText(const std::string& path, std::vector<TokenId> prompt, int count) {
  auto model = Model::Open(path);
  EXPECT_TRUE(model.ok()) << model.error().message;
  auto session = OpenSession(*model, TrainedOptions());
  EXPECT_TRUE(session->Append(prompt).ok());
  std::string text;
  for (int i = 0; i < count; ++i) {
    const auto logits = session->logits();
    const TokenId next =
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    text += (*model)->tokenizer().TokenBytes(next, {.special = false});
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

TEST_P(Golden, LogitsAtEveryPosition) {
  const GoldenCase& golden = GetParam();
  const std::string path = SharedPath(std::string("models/") + golden.model);
  KVANT_SKIP_WITHOUT(path);
  const std::vector<TokenId> tokens =
      ReadTokenList(SharedPath(std::string("models/golden/") + golden.tokens));
  auto expected =
      formats::NpyRead(SharedPath(std::string("models/golden/") + golden.name + ".npy"));
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  auto model = Model::Open(path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  auto session = OpenSession(*model, TrainedOptions());
  const std::vector<float> logits = AllLogits(*session, tokens, tokens.size());
  ASSERT_EQ(logits.size(), expected->values.size());
  if (golden.max_difference > 0) {
    EXPECT_LE(MaxDifference(logits, expected->values), golden.max_difference);
  }
  EXPECT_LE(MeanDivergence(expected->values, logits, tokens.size()), golden.mean_divergence);
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
    [](const auto& test) {
      std::string name = test.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace kvant::test
