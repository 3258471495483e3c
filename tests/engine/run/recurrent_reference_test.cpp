// Models with recurrent layers beside transformers, whose logits come with the seeded models. Names
// begin with the number of the check.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/arch/spec.h"
#include "formats/npy.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

constexpr double kRecurrentTolerance = 1e-4;

class RecurrentReference : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    SeededModel seeded(GetParam());
    tokens_ = seeded.Tokens();
    const auto expected = formats::NpyRead(seeded.LogitsPath());
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    expected_ = expected->values;
    model_ = seeded.Open();
    ASSERT_NE(model_, nullptr);
  }

  std::unique_ptr<Session> Open() const {
    SessionOptions options;
    options.k_type = options.v_type = KvType::kF32;
    options.threads = 2;
    return OpenSession(model_, options);
  }

  // How far the logits are from those of transformers where the tokens come in such pieces.
  double Difference(size_t piece) const {
    return MaxDifference(AllLogits(*Open(), tokens_, piece), expected_);
  }

  std::vector<TokenId> tokens_;
  std::vector<float> expected_;  // [tokens][vocab]
  std::shared_ptr<const Model> model_;
};

std::string TestName(const testing::TestParamInfo<std::string>& model) {
  std::string name = model.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Seeded, RecurrentReference,
                         testing::Values("lfm2", "lfm2-bias", "lfm2moe", "qwen3next",
                                         "qwen3next-four", "qwen35", "qwen35-four", "qwen35moe",
                                         "mamba2", "mamba2-groups", "granitehybrid",
                                         "granitehybrid-dense", "falcon-h1", "nemotron_h",
                                         "kimi-linear", "kimi-linear-published", "bailingmoe3",
                                         "bailingmoe3-published", "nemotron_h_moe-latent",
                                         "qwen4exp", "qwen4exp-two"),
                         TestName);

TEST_P(RecurrentReference, AWholePromptAndSingleTokensHaveTheLogitsOfTransformers) {
  EXPECT_LE(Difference(tokens_.size()), kRecurrentTolerance);
  EXPECT_LE(Difference(1), kRecurrentTolerance);
}

// A convolution looks back over 2 or 3 rows.
TEST_P(RecurrentReference, APromptMayBeShorterThanWhatAConvolutionLooksBack) {
  const size_t vocab = expected_.size() / tokens_.size();
  for (const size_t length : {size_t{1}, size_t{2}}) {
    const auto session = Open();
    ExpectOk(session->Append(std::span(tokens_).first(length)));
    const auto row = [&](size_t count) {
      return std::span(expected_).subspan((count - 1) * vocab, vocab);
    };
    EXPECT_LE(MaxDifference(session->logits(), row(length)), kRecurrentTolerance);
    ExpectOk(session->Append(std::span(tokens_).subspan(length)));
    EXPECT_LE(MaxDifference(session->logits(), row(tokens_.size())), kRecurrentTolerance);
  }
}

struct ValueHeadOrder {
  const char* model;
  arch::ValueHeads order;
  int64_t per_key_head;
};

class ValueHeadOrders : public testing::TestWithParam<ValueHeadOrder> {};

INSTANTIATE_TEST_SUITE_P(
    Seeded, ValueHeadOrders,
    testing::Values(ValueHeadOrder{"qwen3next", arch::ValueHeads::kGrouped, 2},
                    ValueHeadOrder{"qwen3next-four", arch::ValueHeads::kGrouped, 4},
                    ValueHeadOrder{"qwen35", arch::ValueHeads::kTiled, 2},
                    ValueHeadOrder{"qwen35-four", arch::ValueHeads::kTiled, 4}),
    [](const auto& order) {
      std::string name = order.param.model;
      std::ranges::replace(name, '-', '_');
      return name;
    });

// RecurrentReference compares the model's logits with those of transformers. Here the model must be
// of the kind that it stands for: with several key heads the other order gives other logits.
TEST_P(ValueHeadOrders, TheOrderOfValueHeadsIsThatOfTheFamily) {
  SeededModel seeded(GetParam().model);
  const auto model = seeded.Open();
  ASSERT_NE(model, nullptr);
  const auto expected = formats::NpyRead(seeded.LogitsPath());
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  size_t found = 0;
  for (const arch::LayerSpec& layer : model->spec().stacks.front().layers) {
    for (const arch::Sublayer& sublayer : layer.sublayers) {
      const auto* net = std::get_if<arch::DeltaNet>(&sublayer.block);
      if (net == nullptr) continue;
      ++found;
      EXPECT_EQ(net->order, GetParam().order);
      EXPECT_EQ(net->value_heads / net->key_heads, GetParam().per_key_head);
      for (int64_t head = 0; head < net->value_heads; ++head) {
        EXPECT_EQ(net->KeyHead(head), GetParam().order == arch::ValueHeads::kTiled
                                          ? head % net->key_heads
                                          : head / GetParam().per_key_head);
      }
    }
  }
  EXPECT_GT(found, 0u);
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
  const auto session = OpenSession(model, options);
  const std::vector<TokenId> tokens = seeded.Tokens();
  EXPECT_LE(MaxDifference(AllLogits(*session, tokens, 7), expected->values), kRecurrentTolerance);
}

}  // namespace
}  // namespace kvant::test
