// States whose scans keep F16: close to those of F32 after thousands of tokens, and half as large.
// That their bits depend on the tokens alone is among the tests of recurrent_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "engine/graph/plan.h"
#include "kvant/memory_plan.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

struct Kind {
  std::string model;
  double tolerance;  // of logits; four times what was found
};

class StateType : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    model_ = SeededModel(GetParam().model).Open(OwnGemm());
    ASSERT_NE(model_, nullptr);
  }

  static SessionOptions WithStates(KvType type) {
    SessionOptions options = Options(KvType::kF32, 1);
    options.context = 4000;
    options.state_type = type;
    return options;
  }

  std::vector<float> LogitsAfter(const std::vector<TokenId>& tokens, KvType type) const {
    const auto runner = OpenRunner(model_, WithStates(type));
    const SequenceId id = NewSequence(*runner);
    ExpectOk(runner->Append(id, tokens));
    return {runner->logits(id).begin(), runner->logits(id).end()};
  }

  uint64_t StateBytes(KvType type) const {
    const auto plan = PlanMemory(*model_, WithStates(type));
    uint64_t bytes = 0;
    for (const MemoryPlan::Group& group : plan.value().groups) {
      if (group.states > 0) bytes += group.bytes;
    }
    return bytes;
  }

  const std::shared_ptr<const Model>& model() const { return model_; }

 private:
  std::shared_ptr<const Model> model_;
};

INSTANTIATE_TEST_SUITE_P(Seeded, StateType,
                         testing::Values(Kind{"qwen3next", 2.6e-3}, Kind{"mamba2", 3.4e-3},
                                         Kind{"falcon-h1", 1e-3}, Kind{"mamba-bias", 3.4e-3},
                                         Kind{"rwkv6", 1e-2}, Kind{"rwkv7", 1.1e-3},
                                         Kind{"kimi-linear", 1e-2}, Kind{"bailingmoe3", 1e-2}),
                         [](const auto& kind) {
                           std::string name = kind.param.model;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(StateType, AStateOfF16IsCloseAfter4000Tokens) {
  const auto tokens = RandomTokens(4000, 23, model()->vocab_size());
  const std::vector<float> exact = LogitsAfter(tokens, KvType::kF32);
  const std::vector<float> rounded = LogitsAfter(tokens, KvType::kF16);
  const double difference = MaxDifference(rounded, exact);
  EXPECT_LE(difference, GetParam().tolerance);
  EXPECT_GT(difference, 0.0);
}

TEST_P(StateType, AStateOfF16TakesHalfTheBytesOfItsScans) {
  uint64_t saved = 0;
  for (const graph::CacheLayer& layer : model()->plan().cache_layers()) {
    saved += static_cast<uint64_t>(layer.scan_floats) * sizeof(float) / 2;
  }
  const auto states = static_cast<uint64_t>(2 + kDefaultStateCheckpoints);
  // A layer keeps a multiple of 64 bytes.
  EXPECT_NEAR(static_cast<double>(StateBytes(KvType::kF32) - StateBytes(KvType::kF16)),
              static_cast<double>(states * saved),
              static_cast<double>(states * 64 * model()->plan().cache_layers().size()));
}

TEST_P(StateType, AStateOfInt8IsRefused) {
  EXPECT_EQ(PlanMemory(*model(), WithStates(KvType::kQ8)).error().message,
            "state type: expected f32 or f16, found q8");
}

TEST_P(StateType, ASavedStateOfAnotherTypeIsRefused) {
  const TemporaryFolder folder;
  const auto tokens = RandomTokens(70, 24, model()->vocab_size());
  for (const auto& [saved, wanted] :
       {std::pair{KvType::kF16, KvType::kF32}, {KvType::kF32, KvType::kF16}}) {
    const auto runner = OpenRunner(model(), WithStates(saved));
    const SequenceId id = NewSequence(*runner);
    ExpectOk(runner->Append(id, tokens));
    ExpectOk(runner->Save(folder / "session", {&id, 1}));
    const auto other = OpenRunner(model(), WithStates(wanted));
    EXPECT_EQ(other->Load(folder / "session").error().code, ErrorCode::kNotSupported);
    const auto same = OpenRunner(model(), WithStates(saved));
    EXPECT_TRUE(same->Load(folder / "session").ok());
  }
}

}  // namespace
}  // namespace kvant::test
