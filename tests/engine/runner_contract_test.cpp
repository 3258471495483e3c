// What runner.h promises beside results: logits that come back whatever a window has dropped,
// passes that are all or nothing wherever they are cancelled, and sequences that do not exist.
#include <gtest/gtest.h>

#include <atomic>

#include "engine/graph/observer.h"
#include "engine/kv/kv_cache.h"
#include "tests/engine/runner_kinds.h"

namespace kvant::test {
namespace {

std::vector<float> Logits(const Runner& runner, SequenceId id) {
  return {runner.logits(id).begin(), runner.logits(id).end()};
}

// Goes back as far as the window allows without computing anything again.
int64_t RewindToTheLimit(Runner& runner, SequenceId id) {
  while (runner.length(id) > 1 &&
         runner.Rewind(id, runner.length(id) - 1, Replay::kForbidden).ok()) {
  }
  return runner.length(id);
}

TEST_P(RunnerKinds, LogitsComeBackAtTheLimitOfAWindow) {
  const auto model = OpenModel();
  const auto runner = OpenRunner(model, Options(GetParam().type, 2));
  const std::vector<TokenId> tokens = RandomTokens(700, 1);
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, tokens));
  const int64_t limit = RewindToTheLimit(*runner, id);
  if (GetParam().window > 0) {
    EXPECT_GT(limit, 300);
    EXPECT_LE(limit, 700 - kv::kRewindSlack);
  }
  const SequenceId beside = *runner->Fork(id);
  ExpectOk(runner->ComputeLogits(id));
  const std::span<const TokenId> kept = std::span(tokens).first(static_cast<size_t>(limit));
  EXPECT_EQ(MaxDifference(runner->logits(id), LogitsAlone(model, GetParam().type, kept)), 0.0);
  for (const TokenId token : RandomTokens(40, 2)) {
    ExpectOk(runner->Append(id, {&token, 1}));
    ExpectOk(runner->Append(beside, {&token, 1}));
    ASSERT_EQ(MaxDifference(runner->logits(id), runner->logits(beside)), 0.0);
  }
}

TEST_P(RunnerKinds, LogitsComeBackAfterAnImport) {
  const auto model = OpenModel();
  const auto runner = OpenRunner(model, Options(GetParam().type, 3));
  const std::vector<TokenId> tokens = RandomTokens(150, 1);
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, tokens));
  const auto tensors = runner->Export({&id, 1}, KvLayout::kBhsd);
  ASSERT_TRUE(tensors.ok());
  const auto imported = runner->Import(*tensors, KvLayout::kBhsd);
  ASSERT_TRUE(imported.ok());
  const SequenceId copy = imported->front();
  const SequenceId beside = *runner->Fork(copy);
  ExpectOk(runner->ComputeLogits(copy));
  // int8 was quantized again; a window that must be computed again comes from the tokens.
  const double tolerance = GetParam().type == KvElement::kQ8 ? 0.05 : 0.0;
  EXPECT_LE(MaxDifference(runner->logits(copy), runner->logits(id)), tolerance);
  EXPECT_EQ(runner->length(copy), 150);
  // What was imported is still what the next tokens see.
  for (const TokenId token : RandomTokens(20, 2)) {
    ExpectOk(runner->Append(copy, {&token, 1}));
    ExpectOk(runner->Append(beside, {&token, 1}));
    ASSERT_LE(MaxDifference(runner->logits(copy), runner->logits(beside)), tolerance / 10);
  }
}

// Sets a flag at the n-th matrix product from now on.
class CancelAt final : public graph::MatMulObserver {
 public:
  std::optional<int> Watch(std::span<const std::string>, int64_t) override { return inputs_++; }
  void Observe(int, const float*, int64_t, int64_t, const Range&) override {
    if (left > 0 && --left == 0) cancel = true;
  }

  std::atomic<int> left{0};
  std::atomic<bool> cancel{false};

 private:
  int inputs_ = 0;
};

struct Cancelled {
  Cancelled() {
    ModelOptions model_options = OwnGemm();
    model_options.observer = &observer;
    model = OpenTiny({}, model_options);
    SessionOptions options = Options(KvElement::kF16, 3);
    options.threads = 1;
    options.chunk = 16;
    options.cancel = &observer.cancel;
    runner = OpenRunner(model, options);
  }

  CancelAt observer;
  std::shared_ptr<const Model> model;
  std::unique_ptr<Runner> runner;
};

TEST(RunnerContract, APassIsAllOrNothingWhereverItIsCancelled) {
  Cancelled test;
  Runner& runner = *test.runner;
  const std::vector<TokenId> tokens = RandomTokens(60, 1);
  const SequenceId id = NewSequence(runner);
  ExpectOk(runner.Append(id, std::span(tokens).first(20)));
  const std::vector<float> before = Logits(runner, id);
  int cancelled = 0;
  for (int at = 1; at < 200; ++at) {
    const SequenceId copy = *runner.Fork(id);
    test.observer.left = at;
    const Status status = runner.Append(copy, std::span(tokens).subspan(20, 16));
    const bool was_set = test.observer.cancel.exchange(false);
    test.observer.left = 0;
    if (status.ok()) {
      EXPECT_EQ(runner.length(copy), 36);
      EXPECT_FALSE(runner.logits(copy).empty());
    } else {
      ++cancelled;
      EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
      EXPECT_EQ(runner.length(copy), 20) << at;
      ASSERT_EQ(Logits(runner, copy), before) << at;
    }
    ExpectOk(runner.FreeSequence(copy));
    if (!was_set) break;
  }
  EXPECT_GT(cancelled, 5);
}

TEST(RunnerContract, AStepCancelledInALaterPassKeepsItsCompletePasses) {
  Cancelled test;
  Runner& runner = *test.runner;
  const std::vector<TokenId> tokens = RandomTokens(60, 1);
  ASSERT_EQ(runner.options().chunk, 16);
  const std::vector<float> expected = LogitsAlone(test.model, KvElement::kF16, tokens);
  std::set<int64_t> lengths;
  for (int at = 1; at < 400; ++at) {
    const SequenceId id = NewSequence(runner);
    test.observer.left = at;
    const Status status = runner.Append(id, tokens);
    const bool was_set = test.observer.cancel.exchange(false);
    test.observer.left = 0;
    const int64_t length = runner.length(id);
    lengths.insert(length);
    EXPECT_EQ(std::ssize(runner.tokens(id)), length);
    EXPECT_EQ(runner.logits(id).empty(), !status.ok()) << at;
    EXPECT_EQ(length == 60, status.ok()) << at;
    // It goes on from there as if nothing had happened.
    if (at % 7 == 0 && !status.ok()) {
      ExpectOk(runner.Append(id, std::span(tokens).subspan(static_cast<size_t>(length))));
      EXPECT_EQ(MaxDifference(runner.logits(id), expected), 0.0);
    }
    ExpectOk(runner.FreeSequence(id));
    if (!was_set) break;
  }
  EXPECT_EQ(lengths, (std::set<int64_t>{0, 16, 32, 48, 60}));
}

}  // namespace
}  // namespace kvant::test
