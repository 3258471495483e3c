// Shared by the tests of models with recurrent layers: the models, with states of both types, and
// strict sessions. Strict sessions give equal bits whatever the passes in which a prompt or a
// replay is computed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {

inline constexpr int64_t kRecurrentContext = 2200;

struct RecurrentKind {
  std::string model;
  KvType state_type = KvType::kF32;
};

inline std::vector<RecurrentKind> RecurrentKinds() {
  std::vector<RecurrentKind> kinds;
  for (const char* model :
       {"lfm2", "lfm2moe", "qwen3next", "qwen35-four", "mamba2", "granitehybrid", "falcon-h1",
        "nemotron_h", "nemotron_h_moe-latent", "mamba-bias", "jamba", "rwkv6", "rwkv7",
        "kimi-linear", "bailingmoe3", "qwen4exp", "qwen4exp-two"}) {
    kinds.push_back({model});
  }
  for (const char* model :
       {"qwen3next", "falcon-h1", "mamba-bias", "rwkv7", "bailingmoe3", "qwen4exp"}) {
    kinds.push_back({model, KvType::kF16});
  }
  return kinds;
}

class RecurrentModel : public testing::TestWithParam<RecurrentKind> {
 protected:
  void SetUp() override {
    model_ = SeededModel(GetParam().model).Open(OwnGemm());
    ASSERT_NE(model_, nullptr);
  }

  static SessionOptions Strict(int64_t sequences) {
    SessionOptions options = Options(KvType::kF16, sequences);
    options.state_type = GetParam().state_type;
    options.context = kRecurrentContext;
    options.strict = true;
    return options;
  }

  std::unique_ptr<Runner> Open(const SessionOptions& options) const {
    return OpenRunner(model_, options);
  }

  std::vector<TokenId> Text(size_t count, uint32_t seed) const {
    return RandomTokens(count, seed, model_->vocab_size());
  }

  static std::vector<float> LogitsOf(const Runner& runner, SequenceId id) {
    return {runner.logits(id).begin(), runner.logits(id).end()};
  }

  // The logits after these tokens in a runner of their own, in one step.
  std::vector<float> Alone(std::span<const TokenId> tokens) const {
    SessionOptions options = Strict(1);
    options.kv_check = options.kv_poison = false;
    const auto runner = Open(options);
    const SequenceId id = NewSequence(*runner);
    ExpectOk(runner->Append(id, tokens));
    return LogitsOf(*runner, id);
  }

  // The bytes of one state of every group.
  static uint64_t StateBytes(const Runner& runner) {
    uint64_t bytes = 0;
    for (const KvGroupStats& group : runner.stats().groups) {
      if (group.bytes_per_token == 0) bytes += group.block_bytes;
    }
    return bytes;
  }

  // The first group of states among the counters.
  static KvGroupStats States(const Runner& runner) {
    for (const KvGroupStats& group : runner.stats().groups) {
      if (group.bytes_per_token == 0) return group;
    }
    ADD_FAILURE() << "no group of states";
    return {};
  }

  const std::shared_ptr<const Model>& model() const { return model_; }

 private:
  std::shared_ptr<const Model> model_;
};

inline std::string RecurrentKindName(const testing::TestParamInfo<RecurrentKind>& kind) {
  std::string name = kind.param.model;
  std::ranges::replace(name, '-', '_');
  return kind.param.state_type == KvType::kF16 ? name + "_f16" : name;
}

}  // namespace kvant::test
