// The log of states: rewinds of models with recurrent layers that compute no token again. Random
// programs with a log are in recurrent_programs_test.cpp. Names begin with the number of the check.
#include <gtest/gtest.h>

#include <span>
#include <utility>
#include <vector>

#include "kvant/memory_plan.h"
#include "tests/engine/run/recurrent_kinds.h"

namespace kvant::test {
namespace {

class StateLog : public RecurrentModel {
 protected:
  static SessionOptions WithLog(int64_t tokens) {
    SessionOptions options = Strict(1);
    options.context = 400;
    options.state_log = tokens;
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Seeded, StateLog,
                         testing::Values(RecurrentKind{"lfm2"}, RecurrentKind{"qwen3next"},
                                         RecurrentKind{"mamba2"}, RecurrentKind{"falcon-h1"},
                                         RecurrentKind{"rwkv6"}, RecurrentKind{"rwkv7"},
                                         RecurrentKind{"rwkv7", KvType::kF16},
                                         RecurrentKind{"kimi-linear"}, RecurrentKind{"bailingmoe3"},
                                         RecurrentKind{"bailingmoe3", KvType::kF16}),
                         RecurrentKindName);

// Within the log a rewind scans the tokens since the state before it, and computes none again.
TEST_P(StateLog, ARewindWithinTheLogReplaysNothing) {
  const auto tokens = Text(300, 5);
  const auto runner = Open(WithLog(63));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, std::span(tokens).first(240)));
  for (size_t i = 240; i < tokens.size(); ++i) {
    ExpectOk(runner->Append(id, std::span(tokens).subspan(i, 1)));
  }
  std::vector<TokenId> now = tokens;
  // States after 256 and 288 tokens are kept, the log begins at 237.
  for (const auto& [length, scanned] :
       {std::pair{299, 11}, {295, 7}, {289, 1}, {288, 0}, {287, 31}, {260, 4}, {257, 1}}) {
    const RunnerStats before = runner->stats();
    ExpectOk(runner->Rewind(id, length, Replay::kForbidden));
    EXPECT_EQ(runner->stats().passes, before.passes) << length;
    EXPECT_EQ(runner->stats().tokens_replayed, before.tokens_replayed) << length;
    EXPECT_EQ(runner->stats().tokens_scanned - before.tokens_scanned,
              static_cast<uint64_t>(scanned))
        << length;
    now.resize(static_cast<size_t>(length));
    ExpectOk(runner->ComputeLogits(id));
    EXPECT_EQ(LogitsOf(*runner, id), Alone(now)) << length;
  }
  // A rewind that goes too far back is replayed.
  EXPECT_EQ(runner->Rewind(id, 200, Replay::kForbidden).error().code, ErrorCode::kNotSupported);
  const RunnerStats before = runner->stats();
  ExpectOk(runner->Rewind(id, 200));
  const uint64_t replayed = runner->stats().tokens_replayed - before.tokens_replayed;
  EXPECT_GT(replayed, 0u);
  // The replay runs in passes of the largest size.
  EXPECT_EQ(runner->stats().passes - before.passes,
            (replayed + kSharedRowsMax - 1) / kSharedRowsMax);
  now.resize(200);
  ExpectOk(runner->ComputeLogits(id));
  EXPECT_EQ(LogitsOf(*runner, id), Alone(now));
}

// A prompt that is a single step leaves a state near its end, so the log reaches back to one.
TEST_P(StateLog, ARewindIntoAPromptReplaysNothing) {
  const auto tokens = Text(300, 7);
  const auto runner = Open(WithLog(32));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, tokens));
  for (const auto& [length, scanned] : {std::pair{299, 11}, {290, 2}, {288, 0}}) {
    const RunnerStats before = runner->stats();
    ExpectOk(runner->Rewind(id, length, Replay::kForbidden));
    EXPECT_EQ(runner->stats().tokens_scanned - before.tokens_scanned,
              static_cast<uint64_t>(scanned))
        << length;
    ExpectOk(runner->ComputeLogits(id));
    EXPECT_EQ(LogitsOf(*runner, id), Alone(std::span(tokens).first(static_cast<size_t>(length))))
        << length;
  }
}

TEST_P(StateLog, TakingBackADraftWithinTheLogReplaysNothing) {
  const auto runner = Open(WithLog(16));
  const SequenceId id = NewSequence(*runner);
  std::vector<TokenId> tokens = Text(50, 13);
  ExpectOk(runner->Append(id, tokens));
  uint64_t scanned = 0;
  for (const int64_t accepted : {8, 0, 3, 7, 1}) {
    const auto draft = Text(8, 100 + static_cast<uint32_t>(accepted));
    const StepInput input{id, draft, Logits::kAll};
    ExpectOk(runner->Step({&input, 1}));
    tokens.insert(tokens.end(), draft.begin(), draft.begin() + accepted);
    ExpectOk(runner->Rewind(id, std::ssize(tokens), Replay::kForbidden));
    scanned += accepted == 8 ? 0 : static_cast<uint64_t>(accepted);
    tokens.push_back(5);
    ExpectOk(runner->Append(id, {&tokens.back(), 1}));
    EXPECT_EQ(LogitsOf(*runner, id), Alone(tokens)) << accepted;
  }
  EXPECT_EQ(runner->stats().tokens_replayed, 0u);
  EXPECT_EQ(runner->stats().tokens_scanned, scanned);
}

// A log takes what the plan says, and none is longer than a pass.
TEST_P(StateLog, ThePlanCountsItsBytes) {
  const auto bytes = [&](int64_t tokens) {
    const auto plan = PlanMemory(*model(), WithLog(tokens));
    EXPECT_TRUE(plan.ok());
    return plan.ok() ? plan->activations : 0;
  };
  const uint64_t of_one = bytes(1) - bytes(0);
  EXPECT_GT(of_one, 0u);
  EXPECT_EQ(bytes(20) - bytes(0), 20 * of_one);
  EXPECT_EQ(bytes(kStateLogMax), bytes(kSharedRowsMax));
  EXPECT_FALSE(PlanMemory(*model(), WithLog(kStateLogMax + 1)).ok());
}

}  // namespace
}  // namespace kvant::test
