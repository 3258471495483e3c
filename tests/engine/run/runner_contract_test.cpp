// Tests the promises of runner.h beside results: logits come back whatever a window has dropped,
// passes are all or nothing wherever they are cancelled, and sequences that do not exist are
// refused.
#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "base/result.h"
#include "engine/graph/rowwise/observer.h"
#include "engine/kv/kv_cache.h"
#include "kvant/generator.h"
#include "tests/engine/run/runner_kinds.h"

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
  const double tolerance = GetParam().type == KvType::kQ8 ? 0.05 : 0.0;
  EXPECT_LE(MaxDifference(runner->logits(copy), runner->logits(id)), tolerance);
  EXPECT_EQ(runner->length(copy), 150);
  // The next tokens still see the imported keys and values.
  for (const TokenId token : RandomTokens(20, 2)) {
    ExpectOk(runner->Append(copy, {&token, 1}));
    ExpectOk(runner->Append(beside, {&token, 1}));
    ASSERT_LE(MaxDifference(runner->logits(copy), runner->logits(beside)), tolerance / 10);
  }
}

// Imported keys and values stay as they are, even where a window is computed again for the logits.
// Here they differ from those that the tokens give.
TEST_P(RunnerKinds, LogitsOfAnImportLeaveItAsItIs) {
  const bool again = GetParam().FirstVisible(149) < GetParam().FirstVisible(150);
  if (!again) GTEST_SKIP() << "all that the last token sees was imported";
  const auto runner = OpenRunner(OpenModel(), Options(GetParam().type, 3));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(150, 1)));
  auto tensors = runner->Export({&id, 1}, KvLayout::kBhsd);
  ASSERT_TRUE(tensors.ok());
  for (KvTensor& tensor : tensors->tensors) {
    for (float& value : tensor.values) value *= 1.5f;
  }
  const auto imported = runner->Import(*tensors, KvLayout::kBhsd);
  ASSERT_TRUE(imported.ok());
  const SequenceId copy = imported->front();
  const SequenceId beside = *runner->Fork(copy);
  ExpectOk(runner->ComputeLogits(copy));
  for (const TokenId token : RandomTokens(5, 2)) {
    ExpectOk(runner->Append(copy, {&token, 1}));
    ExpectOk(runner->Append(beside, {&token, 1}));
    ASSERT_EQ(MaxDifference(runner->logits(copy), runner->logits(beside)), 0.0);
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
    SessionOptions options = Options(KvType::kF16, 3);
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
  const std::vector<float> expected = LogitsAlone(test.model, KvType::kF16, tokens);
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
    // The sequence goes on from there as if nothing had happened.
    if (at % 7 == 0 && !status.ok()) {
      ExpectOk(runner.Append(id, std::span(tokens).subspan(static_cast<size_t>(length))));
      EXPECT_EQ(MaxDifference(runner.logits(id), expected), 0.0);
    }
    ExpectOk(runner.FreeSequence(id));
    if (!was_set) break;
  }
  EXPECT_EQ(lengths, (std::set<int64_t>{0, 16, 32, 48, 60}));
}

// Guesses that are all wrong.
class WrongDraft final : public Draft {
 public:
  Result<std::span<const TokenId>> Propose(std::span<const TokenId> text, int64_t count) override {
    guess_.assign(static_cast<size_t>(std::min<int64_t>(count, 4)), (text.back() + 1) % 200);
    return std::span<const TokenId>(guess_);
  }

 private:
  std::vector<TokenId> guess_;
};

TEST(RunnerContract, ACancelledCheckLeavesNoGuessBehind) {
  CancelAt observer;
  ModelOptions model_options = OwnGemm();
  model_options.observer = &observer;
  const auto model = OpenTiny({}, model_options);
  SessionOptions options = Options(KvType::kF16, 1);
  options.threads = 1;
  options.chunk = 2;  // a check takes three passes
  options.cancel = &observer.cancel;
  const std::vector<TokenId> prompt = RandomTokens(9, 3);
  const auto run = [&](int at) {
    auto session = OpenSession(model, options);
    SamplingOptions greedy;
    greedy.temperature = 0;
    Sampler sampler = *Sampler::Create(greedy, model->vocab_size());
    GenerateOptions generate;
    generate.max_tokens = 4;
    generate.ignore_eos = true;
    generate.draft = std::make_shared<WrongDraft>();
    observer.left = at;
    const auto text = Generate(*session, model->tokenizer(), sampler, prompt, generate, {});
    observer.left = 0;
    EXPECT_TRUE(text.ok());
    const bool was_set = observer.cancel.exchange(false);
    EXPECT_TRUE(was_set || text->finish_reason == FinishReason::kLength);
    return std::vector<TokenId>(session->tokens().begin(), session->tokens().end());
  };
  const std::vector<TokenId> whole = run(0);
  ASSERT_EQ(whole.size(), 12u);
  std::set<size_t> lengths;
  for (int at = 1; at < 250; ++at) {
    const std::vector<TokenId> tokens = run(at);
    ASSERT_LE(tokens.size(), whole.size()) << at;
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), whole.begin())) << at;
    lengths.insert(tokens.size());
  }
  EXPECT_TRUE(lengths.contains(10) && lengths.contains(11)) << "cancelled nowhere in a check";
}

TEST(RunnerContract, ASequenceThatDoesNotExistHasNothing) {
  const auto model = OpenTiny({}, OwnGemm());
  const auto runner = OpenRunner(model, Options(KvType::kF16, 3));
  const SequenceId id = NewSequence(*runner);
  const SequenceId freed = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(10, 1)));
  ExpectOk(runner->Append(freed, RandomTokens(10, 1)));
  ExpectOk(runner->FreeSequence(freed));
  EXPECT_TRUE(runner->Has(id));
  for (const SequenceId none : {-1, freed, 2, 3, 1'000'000'000, INT32_MIN}) {
    EXPECT_FALSE(runner->Has(none));
    EXPECT_EQ(runner->length(none), 0);
    EXPECT_TRUE(runner->tokens(none).empty());
    EXPECT_TRUE(runner->logits(none).empty());
    EXPECT_EQ(runner->ReusePrefix(none, {}).error().code, ErrorCode::kInvalid);
    EXPECT_EQ(runner->ComputeLogits(none).error().code, ErrorCode::kInvalid);
    EXPECT_EQ(runner->FreeSequence(none).error().code, ErrorCode::kInvalid);
  }
}

TEST(RunnerContract, RowsAreThereOnlyWhileTheyAreShown) {
  const auto model = OpenTiny({}, OwnGemm());
  const auto runner = OpenRunner(model, Options(KvType::kF16, 1));
  const SequenceId id = NewSequence(*runner);
  EXPECT_TRUE(runner->row(0).empty());
  int64_t calls = 0;
  ExpectOk(runner->AppendScoring(id, RandomTokens(40, 1), 5, [&](int64_t, int64_t count) {
    ++calls;
    EXPECT_EQ(runner->row(count - 1).size(), static_cast<size_t>(kTinyVocab));
    EXPECT_TRUE(runner->row(count).empty());
    EXPECT_TRUE(runner->row(-1).empty());
    return Status();
  }));
  EXPECT_GT(calls, 1);
  EXPECT_TRUE(runner->row(0).empty());
  // An error of the caller's undoes the pass.
  const Status refused = runner->AppendScoring(
      id, RandomTokens(7, 2), 0,
      [](int64_t, int64_t) -> Status { return MakeError(ErrorCode::kIo, "no more"); });
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
  EXPECT_EQ(runner->length(id), 40);
  EXPECT_FALSE(runner->logits(id).empty());
}

TEST(RunnerContract, EachWrongInputOfAStepIsNamed) {
  const auto model = OpenTiny({}, OwnGemm());
  const auto runner = OpenRunner(model, Options(KvType::kF16, 2));
  const SequenceId a = NewSequence(*runner);
  const SequenceId b = NewSequence(*runner);
  const std::vector<TokenId> good = {5, 6};
  const std::vector<TokenId> bad = {5, static_cast<TokenId>(kTinyVocab)};
  const std::vector<StepInput> inputs = {{a, good}, {7, good}, {b, bad}, {a, good}};
  std::vector<Status> statuses(inputs.size());
  const Status status = runner->Step(inputs, {.statuses = statuses});
  EXPECT_EQ(status.error().message, statuses[1].error().message);
  EXPECT_TRUE(statuses[0].ok());
  EXPECT_EQ(statuses[2].error().message, "token 1: expected an id from 0 to 258, found 259");
  EXPECT_EQ(statuses[3].error().message, "sequence 0 appears twice in a step");
  EXPECT_EQ(runner->length(a), 0);
  // A flag of the call's own.
  const std::atomic<bool> cancel{true};
  EXPECT_EQ(runner->Step({inputs.data(), 1}, {.cancel = &cancel}).error().code,
            ErrorCode::kCancelled);
  EXPECT_EQ(runner->length(a), 0);
  ExpectOk(runner->Step({inputs.data(), 1}));
}

}  // namespace
}  // namespace kvant::test
