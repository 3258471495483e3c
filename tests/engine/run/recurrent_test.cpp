// Models with recurrent layers: their states pass through everything that a runner does with
// sequences. Names begin with the number of the check; RS-05 is in recurrent_programs_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "kvant/memory_plan.h"
#include "tests/engine/run/recurrent_kinds.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

class Recurrent : public RecurrentModel {};

INSTANTIATE_TEST_SUITE_P(Seeded, Recurrent, testing::ValuesIn(RecurrentKinds()), RecurrentKindName);

// Prompts shorter than what a convolution keeps are among the pieces (RS-10).
TEST_P(Recurrent, TheCutOfAPromptAndTheThreadsChangeNoBit) {
  const auto tokens = Text(130, 1);
  const std::vector<float> expected = Alone(tokens);
  for (const size_t piece : {1, 2, 31, 32, 33, 63}) {
    for (const int threads : {1, 3, 8}) {
      SessionOptions options = Strict(1);
      options.threads = threads;
      const auto runner = Open(options);
      const SequenceId id = NewSequence(*runner);
      for (size_t at = 0; at < tokens.size(); at += piece) {
        ExpectOk(
            runner->Append(id, std::span(tokens).subspan(at, std::min(piece, tokens.size() - at))));
      }
      ASSERT_EQ(LogitsOf(*runner, id), expected) << piece << " tokens, " << threads << " threads";
    }
  }
}

TEST_P(Recurrent, TheCacheAgreesWithTheWholeSequenceComputedAgain) {
  for (const size_t count : {1, 2, 3, 100, 1500}) {
    const auto tokens = Text(count, 2);
    SessionOptions options = Options(KvType::kF32, 1);
    options.context = kRecurrentContext;
    const auto cached = Open(options);
    const SequenceId id = NewSequence(*cached);
    ExpectOk(cached->Append(id, std::span(tokens).first(count / 2 + 1)));
    for (size_t i = count / 2 + 1; i < count; ++i) {
      ExpectOk(cached->Append(id, std::span(tokens).subspan(i, 1)));
    }
    options.kv_cache = false;
    const auto whole = Open(options);
    const SequenceId again = NewSequence(*whole);
    ExpectOk(whole->Append(again, tokens));
    EXPECT_LE(MaxDifference(LogitsOf(*cached, id), LogitsOf(*whole, again)), 1e-4) << count;
  }
}

TEST_P(Recurrent, AForkCopiesNothingAndBothGoOnAsIfAlone) {
  const auto runner = Open(Strict(2));
  const SequenceId first = NewSequence(*runner);
  const auto tokens = Text(70, 3);
  ExpectOk(runner->Append(first, std::span(tokens).first(64)));
  const RunnerStats before = runner->stats();
  const SequenceId second = runner->Fork(first).value();
  EXPECT_EQ(runner->stats().kv_bytes_used, before.kv_bytes_used);
  EXPECT_EQ(runner->stats().kv_blocks_taken, before.kv_blocks_taken);
  std::vector<TokenId> other(tokens.begin(), tokens.begin() + 64);
  for (const TokenId token : {TokenId{9}, TokenId{4}, TokenId{33}}) {
    ExpectOk(runner->Append(second, {&token, 1}));
    other.push_back(token);
  }
  ExpectOk(runner->Append(first, std::span(tokens).subspan(64)));
  EXPECT_EQ(LogitsOf(*runner, first), Alone(tokens));
  EXPECT_EQ(LogitsOf(*runner, second), Alone(other));
  // 64 tokens fill whole blocks: nothing is copied on write either.
  EXPECT_EQ(runner->stats().kv_bytes_copied, 0u);
}

// A cancelled pass wrote into the other block, which is filled with NaN when it is given back.
TEST_P(Recurrent, ACancelledStepLeavesTheStateAsItWas) {
  std::atomic<bool> cancel = false;
  const auto runner = Open(Strict(1));
  const SequenceId id = NewSequence(*runner);
  const auto tokens = Text(80, 4);
  ExpectOk(runner->Append(id, std::span(tokens).first(40)));
  const RunnerStats before = runner->stats();
  cancel = true;
  const StepInput input{id, std::span(tokens).subspan(40)};
  EXPECT_EQ(runner->Step({&input, 1}, {.cancel = &cancel}).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(runner->stats().kv_bytes_used, before.kv_bytes_used);
  EXPECT_EQ(runner->stats().kv_bytes_written, before.kv_bytes_written);
  EXPECT_EQ(runner->length(id), 40);
  ExpectOk(runner->Append(id, std::span(tokens).subspan(40)));
  EXPECT_EQ(LogitsOf(*runner, id), Alone(tokens));
}

TEST_P(Recurrent, ARewindGoesToACheckpointOrReplaysFromTheOneBefore) {
  const auto tokens = Text(300, 5);
  const auto runner = Open(Strict(1));
  const SequenceId id = NewSequence(*runner);
  for (size_t i = 0; i < tokens.size(); ++i) {
    ExpectOk(runner->Append(id, std::span(tokens).subspan(i, 1)));
  }
  // The states after 256 and 288 tokens are kept; that after 290 is not.
  EXPECT_EQ(runner->Rewind(id, 290, Replay::kForbidden).error().code, ErrorCode::kNotSupported);
  EXPECT_EQ(runner->length(id), 300);
  EXPECT_EQ(LogitsOf(*runner, id), Alone(tokens));
  const auto rewind = [&](int64_t length) {
    const uint64_t before = runner->stats().tokens_replayed;
    ExpectOk(runner->Rewind(id, length));
    ExpectOk(runner->Append(id, {&tokens[5], 1}));
    std::vector<TokenId> now(tokens.begin(), tokens.begin() + length);
    now.push_back(tokens[5]);
    EXPECT_EQ(LogitsOf(*runner, id), Alone(now)) << length;
    return runner->stats().tokens_replayed - before;
  };
  EXPECT_EQ(rewind(290), 2u);
  EXPECT_EQ(rewind(289), 1u);
  EXPECT_EQ(rewind(288), 0u);
  EXPECT_EQ(rewind(256), 0u);
  EXPECT_LE(rewind(170), 170u - 128u);
  EXPECT_EQ(rewind(1), 1u);
  EXPECT_EQ(rewind(0), 0u);
}

// However long the text, a replay is about as long as the rewind, and the states are few.
// An answer can be taken back, whatever the length of its prompt.
TEST_P(Recurrent, TheEndOfAPromptIsKept) {
  for (const size_t length : {2, 45, 513}) {
    const auto runner = Open(Strict(1));
    const SequenceId id = NewSequence(*runner);
    const auto tokens = Text(length + 50, 25);
    ExpectOk(runner->Append(id, std::span(tokens).first(length)));
    for (int round = 0; round < 2; ++round) {
      for (size_t i = length; i < tokens.size(); ++i) {
        ExpectOk(runner->Append(id, std::span(tokens).subspan(i, 1)));
      }
      EXPECT_EQ(LogitsOf(*runner, id), Alone(tokens)) << length;
      ExpectOk(runner->Rewind(id, static_cast<int64_t>(length), Replay::kForbidden));
    }
    EXPECT_EQ(runner->stats().tokens_replayed, 0u) << length;
  }
}

TEST_P(Recurrent, ReplaysAreAboutAsLongAsRewinds) {
  const auto tokens = Text(2112, 6);
  const auto runner = Open(Strict(1));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, tokens));
  for (int i = 0; i < 64; ++i) ExpectOk(runner->Append(id, {&tokens[7], 1}));
  EXPECT_LE(States(*runner).blocks_used, kDefaultStateCheckpoints + 1);
  for (const int64_t back : {1, 40, 100, 400, 1000}) {
    const SequenceId copy = id;
    const SnapshotId snapshot = runner->TakeSnapshot(copy).value();
    const uint64_t before = runner->stats().tokens_replayed;
    ExpectOk(runner->Rewind(copy, 2176 - back));
    EXPECT_LE(runner->stats().tokens_replayed - before, static_cast<uint64_t>(2 * back + 32))
        << back;
    ExpectOk(runner->Restore(copy, snapshot));
    ExpectOk(runner->DropSnapshot(snapshot));
  }
}

TEST_P(Recurrent, AReplayWritesNoRowThatIsKept) {
  const auto runner = Open(Strict(1));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, Text(250, 7)));
  const RunnerStats before = runner->stats();
  ExpectOk(runner->Rewind(id, 249));
  const RunnerStats after = runner->stats();
  const uint64_t passes = after.passes - before.passes;
  EXPECT_GT(passes, 0u);
  EXPECT_EQ(after.kv_bytes_written - before.kv_bytes_written, passes * StateBytes(*runner));
}

// Tokens that are computed again are counted, and the log says why.
TEST_P(Recurrent, EveryReplayIsCountedAndItsCauseNamed) {
  const auto runner = Open(Strict(1));
  std::vector<std::string> replays;
  runner->SetKvLog([&](std::string_view line) {
    if (line.find("event: replay") != line.npos) replays.emplace_back(line);
  });
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, Text(40, 19)));
  ExpectOk(runner->Rewind(id, 39));
  EXPECT_EQ(runner->stats().replays, 1u);
  EXPECT_EQ(runner->stats().tokens_replayed, 39u);
  ASSERT_EQ(replays.size(), 1u);
  EXPECT_EQ(replays[0], "KV event: replay sequence=0 positions=[0,39) for=\"one state\"");
}

TEST_P(Recurrent, AResetSequenceBeginsWithZeros) {
  const auto runner = Open(Strict(1));
  const SequenceId id = NewSequence(*runner);
  const auto tokens = Text(5, 8);
  ExpectOk(runner->Append(id, Text(100, 9)));
  ExpectOk(runner->Reset(id));
  EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
  ExpectOk(runner->Append(id, tokens));
  EXPECT_EQ(LogitsOf(*runner, id), Alone(tokens));
}

TEST_P(Recurrent, SequencesOfDifferentLengthsInOneStepAreAsAlone) {
  const auto runner = Open(Strict(4));
  std::vector<std::vector<TokenId>> tokens;
  std::vector<SequenceId> ids;
  for (const size_t count : {1, 2, 17, 40}) {
    tokens.push_back(Text(count, static_cast<uint32_t>(count)));
    ids.push_back(NewSequence(*runner));
  }
  for (int round = 0; round < 3; ++round) {
    std::vector<StepInput> inputs;
    for (size_t i = 0; i < ids.size(); ++i) inputs.push_back({ids[i], tokens[i]});
    ExpectOk(runner->Step(inputs));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    std::vector<TokenId> all;
    for (int round = 0; round < 3; ++round) {
      all.insert(all.end(), tokens[i].begin(), tokens[i].end());
    }
    EXPECT_EQ(LogitsOf(*runner, ids[i]), Alone(all)) << i;
  }
}

TEST_P(Recurrent, AKnownPromptIsReusedUpToItsDeepestState) {
  SessionOptions options = Strict(2);
  options.prefix_cache = true;
  const auto runner = Open(options);
  const auto tokens = Text(600, 10);
  const SequenceId first = NewSequence(*runner);
  ExpectOk(runner->Append(first, tokens));
  const SequenceId second = NewSequence(*runner);
  ExpectOk(runner->Append(second, tokens));
  EXPECT_EQ(runner->stats().tokens_reused, 576u);  // 18 blocks, and never the last token
  EXPECT_EQ(LogitsOf(*runner, second), Alone(tokens));
  // Keys and values of 540 tokens are known, but the deepest state among them is that of 512.
  ExpectOk(runner->Reset(second));
  std::vector<TokenId> other(tokens.begin(), tokens.begin() + 540);
  for (int i = 0; i < 30; ++i) other.push_back(3);
  ExpectOk(runner->Append(second, other));
  EXPECT_EQ(runner->stats().tokens_reused, 576u + 512u);
  EXPECT_EQ(LogitsOf(*runner, second), Alone(other));
}

TEST_P(Recurrent, SavedSequencesGoOnWithTheSameBitsAndKeepTheirCheckpoints) {
  const TemporaryFolder folder;
  const std::string path = folder / "session";
  const auto tokens = Text(150, 11);
  {
    const auto runner = Open(Strict(2));
    const SequenceId id = NewSequence(*runner);
    for (size_t i = 0; i < tokens.size(); ++i) {
      ExpectOk(runner->Append(id, std::span(tokens).subspan(i, 1)));
    }
    const SequenceId ids[] = {id, NewSequence(*runner)};
    ExpectOk(runner->Save(path, ids));
  }
  const auto runner = Open(Strict(2));
  const auto ids = runner->Load(path);
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  EXPECT_EQ(LogitsOf(*runner, ids->front()), Alone(tokens));
  ExpectOk(runner->Append(ids->front(), {&tokens[3], 1}));
  std::vector<TokenId> longer = tokens;
  longer.push_back(tokens[3]);
  EXPECT_EQ(LogitsOf(*runner, ids->front()), Alone(longer));
  ExpectOk(runner->Rewind(ids->front(), 128));
  EXPECT_EQ(runner->stats().tokens_replayed, 0u);
  ExpectOk(runner->Append(ids->front(), std::span(tokens).subspan(128)));
  EXPECT_EQ(LogitsOf(*runner, ids->front()), Alone(tokens));
  // Another model has states of other sizes.
  const auto other = OpenRunner(SeededModel("lfm2-bias").Open(OwnGemm()), Strict(2));
  EXPECT_EQ(other->Load(path).error().code, ErrorCode::kNotSupported);
}

TEST_P(Recurrent, ThePlanIsExactAndCheckpointsMakeRoomForSequences) {
  SessionOptions options = Strict(3);
  const auto plan = PlanMemory(*model(), options);
  ASSERT_TRUE(plan.ok());
  uint64_t bytes = 0;
  for (const MemoryPlan::Group& group : plan->groups) bytes += 3 * group.bytes;
  EXPECT_EQ(plan->kv, bytes);
  const auto& states = *std::ranges::find_if(plan->groups, [](const auto& g) { return g.states; });
  EXPECT_EQ(states.states, 2 + kDefaultStateCheckpoints);
  EXPECT_EQ(states.bytes, static_cast<uint64_t>(states.states) * states.state_bytes);

  // Room for the sequences and no more: they all go on, without checkpoints.
  uint64_t needed = 0;
  for (const MemoryPlan::Group& group : plan->groups) {
    needed +=
        3 * (group.states > 0 ? 2 * group.state_bytes : 100 * group.bytes_per_token * 32 / 25);
  }
  options.kv_bytes_max = needed;
  const auto runner = Open(options);
  const auto tokens = Text(100, 12);
  for (int i = 0; i < 3; ++i) {
    const SequenceId id = NewSequence(*runner);
    for (size_t at = 0; at < tokens.size(); at += 4) {
      ExpectOk(runner->Append(id, std::span(tokens).subspan(at, 4)));
    }
    EXPECT_EQ(LogitsOf(*runner, id), Alone(tokens));
  }
  EXPECT_LE(runner->stats().kv_bytes_peak, needed);
}

// A draft of k tokens of which m are taken, as speculation does it.
TEST_P(Recurrent, TakingBackADraftReplaysOnlyTheDraft) {
  const auto runner = Open(Strict(1));
  const SequenceId id = NewSequence(*runner);
  std::vector<TokenId> tokens = Text(50, 13);
  ExpectOk(runner->Append(id, tokens));
  for (const int64_t accepted : {8, 0, 3, 7, 1}) {
    const auto draft = Text(8, 100 + static_cast<uint32_t>(accepted));
    const StepInput input{id, draft, Logits::kAll};
    ExpectOk(runner->Step({&input, 1}));
    const uint64_t before = runner->stats().tokens_replayed;
    tokens.insert(tokens.end(), draft.begin(), draft.begin() + accepted);
    ExpectOk(runner->Rewind(id, std::ssize(tokens)));
    EXPECT_EQ(runner->stats().tokens_replayed - before,
              static_cast<uint64_t>(accepted == 8 ? 0 : accepted));
    tokens.push_back(5);
    ExpectOk(runner->Append(id, {&tokens.back(), 1}));
    EXPECT_EQ(LogitsOf(*runner, id), Alone(tokens)) << accepted;
  }
}

TEST_P(Recurrent, ADecodeStepWritesOneStateAndOneRow) {
  const auto runner = Open(Strict(3));
  const SequenceId id = NewSequence(*runner);
  for (int i = 0; i < 2; ++i) ExpectOk(runner->Append(NewSequence(*runner), Text(40, 14)));
  ExpectOk(runner->Append(id, Text(40, 15)));
  const RunnerStats before = runner->stats();
  ExpectOk(runner->Append(id, Text(1, 16)));
  uint64_t row = 0;
  for (const KvGroupStats& group : before.groups) row += group.bytes_per_token;
  EXPECT_EQ(runner->stats().kv_bytes_written - before.kv_bytes_written, row + StateBytes(*runner));
}

TEST_P(Recurrent, WhatAStateCannotDoIsRefused) {
  const auto runner = Open(Strict(1));
  const SequenceId id = NewSequence(*runner);
  const auto tokens = Text(40, 17);
  ExpectOk(runner->Append(id, tokens));
  for (const auto positions : {PrunePositions::kKept, PrunePositions::kMoved}) {
    const Status pruned = runner->Prune(id, 4, 4, positions);
    EXPECT_EQ(pruned.error().code, ErrorCode::kNotSupported);
    EXPECT_THAT(pruned.error().message, testing::HasSubstr("recurrent state"));
  }
  const auto exported = runner->Export({&id, 1}, KvLayout::kBhsd);
  EXPECT_EQ(exported.error().code, ErrorCode::kNotSupported);
  EXPECT_EQ(LogitsOf(*runner, id), Alone(tokens));
}

// Without checkpoints everything works, and a rewind computes all tokens again.
TEST_P(Recurrent, SessionsWithoutCheckpointsReplayAllTokens) {
  SessionOptions options = Strict(1);
  options.state_checkpoints = 0;
  const auto runner = Open(options);
  const SequenceId id = NewSequence(*runner);
  const auto tokens = Text(100, 18);
  ExpectOk(runner->Append(id, tokens));
  EXPECT_EQ(States(*runner).blocks_used, 1);
  ExpectOk(runner->Rewind(id, 90));
  EXPECT_EQ(runner->stats().tokens_replayed, 90u);
  ExpectOk(runner->Append(id, std::span(tokens).subspan(90)));
  EXPECT_EQ(LogitsOf(*runner, id), Alone(tokens));
}

}  // namespace
}  // namespace kvant::test
