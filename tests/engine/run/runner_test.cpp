// Many sequences at once, on models that the tests make: every sequence, whatever was forked,
// reordered, rewound, pruned or batched, must have the bits of a session of its own that was given
// the same tokens.
#include "kvant/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/kv/kv_cache.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Kinds, RunnerKinds, testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(RunnerKinds, RaggedBatchesEqualSingleRuns) {
  const auto model = OpenModel();
  auto runner = OpenRunner(model, Options(GetParam().type, 5));
  std::vector<std::vector<TokenId>> texts;
  std::vector<SequenceId> ids;
  for (const int64_t length : {1, 17, 200, 62, 600}) {
    texts.push_back(RandomTokens(length, static_cast<uint32_t>(length)));
    ids.push_back(NewSequence(*runner));
  }
  std::vector<StepInput> inputs;
  for (size_t i = 0; i < ids.size(); ++i) inputs.push_back({ids[i], texts[i]});
  ExpectOk(runner->Step(inputs));
  EXPECT_EQ(runner->stats().tokens_processed, 1u + 17 + 200 + 62 + 600);  // no padding
  for (int step = 0; step < 40; ++step) {
    inputs.clear();
    for (size_t i = 0; i < ids.size(); ++i) {
      if (step > 20 && i == 2) continue;  // has finished
      texts[i].push_back(static_cast<TokenId>(3 + (step * 7 + static_cast<int>(i) * 31) % 200));
      inputs.push_back({ids[i], std::span(texts[i]).last(1)});
    }
    const uint64_t before = runner->stats().tokens_processed;
    ExpectOk(runner->Step(inputs));
    EXPECT_EQ(runner->stats().tokens_processed - before, inputs.size());
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(MaxDifference(runner->logits(ids[i]), LogitsAlone(model, GetParam().type, texts[i])),
              0.0)
        << i;
  }
}

TEST_P(RunnerKinds, ReorderIsSimultaneousAssignment) {
  const auto model = OpenModel();
  auto runner = OpenRunner(model, Options(GetParam().type, 4));
  std::vector<SequenceId> ids;
  std::vector<std::vector<TokenId>> texts;
  for (uint32_t i = 0; i < 4; ++i) {
    ids.push_back(NewSequence(*runner));
    texts.push_back(RandomTokens(40 + 9 * i, i));
    ExpectOk(runner->Append(ids.back(), texts.back()));
  }
  const std::vector<float> third(runner->logits(ids[2]).begin(), runner->logits(ids[2]).end());
  const std::vector<int> parents = {2, 2, 0, 1};
  ExpectOk(runner->Reorder(ids, parents));
  EXPECT_EQ(MaxDifference(runner->logits(ids[0]), third), 0.0);
  EXPECT_EQ(MaxDifference(runner->logits(ids[1]), third), 0.0);
  std::vector<std::vector<TokenId>> now;
  std::vector<StepInput> inputs;
  for (size_t i = 0; i < 4; ++i) {
    now.push_back(texts[static_cast<size_t>(parents[i])]);
    EXPECT_TRUE(std::ranges::equal(runner->tokens(ids[i]), now.back()));
    now.back().push_back(static_cast<TokenId>(10 + i));
  }
  for (size_t i = 0; i < 4; ++i) inputs.push_back({ids[i], std::span(now[i]).last(1)});
  ExpectOk(runner->Step(inputs));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(MaxDifference(runner->logits(ids[i]), LogitsAlone(model, GetParam().type, now[i])),
              0.0);
  }
  // One sequence too many shares its tail: one block of each group is copied and no more.
  const uint64_t copied = runner->stats().kv_bytes_copied;
  EXPECT_GT(copied, 0u);
  // A permutation copies nothing.
  ExpectOk(runner->Reorder(ids, std::vector<int>{3, 0, 1, 2}));
  inputs.clear();
  const TokenId next = 99;
  for (const SequenceId id : ids) inputs.push_back({id, {&next, 1}});
  ExpectOk(runner->Step(inputs));
  EXPECT_EQ(runner->stats().kv_bytes_copied, copied);

  EXPECT_EQ(runner->Reorder(ids, std::vector<int>{0, 1, 2, 4}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(runner->Reorder(ids, std::vector<int>{0, -1, 2, 3}).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(runner->Reorder(std::vector<int>{ids[0], ids[0]}, std::vector<int>{0, 1}).error().code,
            ErrorCode::kInvalid);
}

TEST_P(RunnerKinds, RewindBeyondTheWindowReplaysExactly) {
  const int64_t window = GetParam().window;
  const auto model = OpenModel();
  SessionOptions options = Options(GetParam().type, 1);
  options.chunk = 40;  // less than a replay needs beside what the window holds
  auto runner = OpenRunner(model, options);
  const std::vector<TokenId> tokens = RandomTokens(800, 7);
  const std::vector<TokenId> other = RandomTokens(5, 8);
  const SequenceId id = NewSequence(*runner);
  for (const int64_t back : {int64_t{1}, kv::kRewindSlack, kv::kRewindSlack + 40, int64_t{700}}) {
    ExpectOk(runner->Reset(id));
    ExpectOk(runner->Append(id, tokens));
    const int64_t length = 800 - back;
    const uint64_t replayed = runner->stats().tokens_replayed;
    if (window > 0 && back > GetParam().RewindMost()) {
      EXPECT_EQ(runner->Rewind(id, length, Replay::kForbidden).error().code,
                ErrorCode::kNotSupported);
      EXPECT_EQ(runner->length(id), 800);
    }
    ExpectOk(runner->Rewind(id, length));
    if (window == 0 || back <= kv::kRewindSlack) {
      EXPECT_EQ(runner->stats().tokens_replayed, replayed);
    } else if (back > GetParam().RewindMost()) {
      EXPECT_GT(runner->stats().tokens_replayed, replayed);
    }
    ExpectOk(runner->Append(id, other));
    std::vector<TokenId> straight(tokens.begin(), tokens.begin() + length);
    straight.insert(straight.end(), other.begin(), other.end());
    EXPECT_EQ(MaxDifference(runner->logits(id), LogitsAlone(model, GetParam().type, straight)), 0.0)
        << back;
  }
}

TEST_P(RunnerKinds, SamplesOfOnePromptShareIt) {
  const auto model = OpenModel();
  auto runner = OpenRunner(model, Options(GetParam().type, 16));
  const std::vector<TokenId> prompt = RandomTokens(500, 3);
  std::vector<SequenceId> ids = {NewSequence(*runner)};
  ExpectOk(runner->Append(ids[0], prompt));
  const uint64_t prompt_bytes = runner->stats().kv_bytes_used;
  for (int i = 1; i < 16; ++i) {
    const auto copy = runner->Fork(ids[0]);
    ASSERT_TRUE(copy.ok());
    ids.push_back(*copy);
  }
  EXPECT_EQ(runner->stats().kv_bytes_used, prompt_bytes);
  EXPECT_EQ(runner->Fork(ids[0]).error().code, ErrorCode::kOutOfMemory);
  std::vector<std::vector<TokenId>> texts(16, prompt);
  for (int step = 0; step < 20; ++step) {
    std::vector<StepInput> inputs;
    for (size_t i = 0; i < 16; ++i) {
      texts[i].push_back(static_cast<TokenId>(3 + (i * 37 + static_cast<size_t>(step) * 11) % 250));
      inputs.push_back({ids[i], std::span(texts[i]).last(1)});
    }
    ExpectOk(runner->Step(inputs));
  }
  EXPECT_EQ(runner->stats().tokens_processed, 500u + 16 * 20);  // the prompt once
  MemoryPlan plan = *PlanMemory(*model, Options(GetParam().type, 16));
  uint64_t row_bytes = 0;
  for (const MemoryPlan::Group& group : plan.groups) row_bytes += group.bytes_per_token;
  EXPECT_LE(runner->stats().kv_bytes_used, prompt_bytes + 16 * (20 + 2 * 32) * row_bytes);
  for (size_t i = 0; i < 16; i += 5) {
    EXPECT_EQ(MaxDifference(runner->logits(ids[i]), LogitsAlone(model, GetParam().type, texts[i])),
              0.0);
  }
}

TEST_P(RunnerKinds, KnownPrefixesAreTakenFromTheCacheWithTheirBits) {
  const auto model = OpenModel();
  SessionOptions options = Options(GetParam().type, 3);
  options.prefix_cache = true;
  auto runner = OpenRunner(model, options);
  const std::vector<TokenId> prompt = RandomTokens(300, 5);
  const SequenceId first = NewSequence(*runner);
  ExpectOk(runner->Append(first, prompt));
  const std::vector<float> expected(runner->logits(first).begin(), runner->logits(first).end());
  ExpectOk(runner->FreeSequence(first));
  const uint64_t processed = runner->stats().tokens_processed;
  const SequenceId again = NewSequence(*runner);
  ExpectOk(runner->Append(again, prompt));
  EXPECT_EQ(runner->stats().tokens_reused, 288u);
  EXPECT_EQ(runner->stats().tokens_processed - processed, 12u);
  EXPECT_EQ(MaxDifference(runner->logits(again), expected), 0.0);

  // Another end: what is common is found, in whole blocks, or to the last token where a sequence
  // has it and can be taken back so far.
  std::vector<TokenId> other(prompt.begin(), prompt.begin() + 100);
  for (int i = 0; i < 50; ++i) other.push_back(7);
  const SequenceId second = NewSequence(*runner);
  ExpectOk(runner->Append(second, other));
  EXPECT_EQ(runner->stats().tokens_reused, 288u + (GetParam().window == 0 ? 100u : 96u));
  EXPECT_EQ(MaxDifference(runner->logits(second), LogitsAlone(model, GetParam().type, other)), 0.0);

  // Under pressure the index gives blocks up and nothing fails.
  for (uint32_t seed = 100; seed < 130; ++seed) {
    ExpectOk(runner->Reset(second));
    ExpectOk(runner->Append(second, RandomTokens(400, seed)));
  }
  EXPECT_EQ(MaxDifference(runner->logits(again), expected), 0.0);
}

TEST_P(RunnerKinds, PrunedPositionsAreHidden) {
  const auto model = OpenModel();
  auto runner = OpenRunner(model, Options(GetParam().type, 2));
  const std::vector<TokenId> tokens = RandomTokens(300, 9);
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, tokens));
  const uint64_t copied = runner->stats().kv_bytes_copied;
  const uint64_t used = runner->stats().kv_bytes_used;
  ExpectOk(runner->Prune(id, 20, 60, PrunePositions::kKept));
  EXPECT_EQ(runner->stats().kv_bytes_copied, copied);
  EXPECT_LT(runner->stats().kv_bytes_used, used);
  EXPECT_EQ(runner->length(id), 300);
  EXPECT_TRUE(runner->logits(id).empty());
  const TokenId next = 50;
  ExpectOk(runner->Append(id, {&next, 1}));
  const std::vector<float> pruned(runner->logits(id).begin(), runner->logits(id).end());
  // The tokens without a hole give other logits, unless no window reaches the hole.
  std::vector<TokenId> whole = tokens;
  whole.push_back(next);
  const double difference = MaxDifference(pruned, LogitsAlone(model, GetParam().type, whole));
  if (GetParam().sees_all() || GetParam().window > 60) {
    EXPECT_GT(difference, 1e-3);
  } else {
    EXPECT_EQ(difference, 0.0);
  }
  EXPECT_EQ(runner->Prune(id, 200, 200, PrunePositions::kKept).error().code, ErrorCode::kInvalid);
}

// The keys of a one-layer model depend on nothing but their token and position, so moving tokens is
// the same as never having had the pruned ones.
TEST_P(RunnerKinds, MovedTokensAreAsIfTheyHadBeenThereFromTheStart) {
  TinyShape shape = Shape();
  shape.layers = 1;
  const auto model = OpenTiny(shape, OwnGemm());
  auto runner = OpenRunner(model, Options(GetParam().type, 2));
  for (const int64_t count : {100, 700}) {
    const std::vector<TokenId> tokens = RandomTokens(count, 9);
    const SequenceId id = NewSequence(*runner);
    const SequenceId shared = *[&] {
      ExpectOk(runner->Append(id, tokens));
      return runner->Fork(id);
    }();
    ExpectOk(runner->Prune(id, 10, 45, PrunePositions::kMoved));
    EXPECT_EQ(runner->length(id), 55);
    std::vector<TokenId> kept(tokens.begin(), tokens.begin() + 10);
    kept.insert(kept.end(), tokens.end() - 45, tokens.end());
    EXPECT_TRUE(std::ranges::equal(runner->tokens(id), kept));
    kept.push_back(50);
    ExpectOk(runner->Append(id, std::span(kept).last(1)));
    // A window cannot show after the move what it has dropped for good before.
    const bool complete = GetParam().window <= 45 || count == 100;
    const double tolerance = GetParam().type == KvType::kF32   ? 1e-4
                             : GetParam().type == KvType::kF16 ? 2e-2
                                                               : 0.3;
    if (complete) {
      EXPECT_LT(MaxDifference(runner->logits(id), LogitsAlone(model, GetParam().type, kept)),
                tolerance);
    }
    // The fork still has what it had.
    std::vector<TokenId> whole = tokens;
    whole.push_back(50);
    ExpectOk(runner->Append(shared, std::span(whole).last(1)));
    EXPECT_EQ(MaxDifference(runner->logits(shared), LogitsAlone(model, GetParam().type, whole)),
              0.0);
    ExpectOk(runner->FreeSequence(id));
    ExpectOk(runner->FreeSequence(shared));
  }
}

TEST(Runner, BytesWrittenPerDecodeStepAreThoseOfOneToken) {
  const auto model = OpenTiny({}, OwnGemm());
  auto runner = OpenRunner(model, Options(KvType::kF32, 1));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(100, 1)));
  for (int i = 0; i < 40; ++i) {
    const uint64_t written = runner->stats().kv_bytes_written;
    const uint64_t taken = runner->stats().kv_blocks_taken;
    const TokenId token = 5;
    ExpectOk(runner->Append(id, {&token, 1}));
    EXPECT_EQ(runner->stats().kv_bytes_written - written, 2u * 2 * 2 * 16 * 4);
    EXPECT_EQ(runner->stats().kv_blocks_taken - taken, (100 + i) % 32 == 0 ? 1u : 0u);
  }
  EXPECT_EQ(runner->stats().kv_bytes_copied, 0u);
}

TEST(Runner, AThousandRequestsLeaveNothingBehind) {
  const auto model = OpenTiny({}, OwnGemm());
  auto runner = OpenRunner(model, Options(KvType::kF16, 1));
  const SequenceId id = NewSequence(*runner);
  const std::vector<TokenId> a = RandomTokens(30, 1);
  const std::vector<TokenId> b = RandomTokens(45, 2);
  const std::vector<float> alone = LogitsAlone(model, KvType::kF16, b);
  for (int i = 0; i < 1000; ++i) {
    ExpectOk(runner->Reset(id));
    EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
    ExpectOk(runner->Append(id, i % 2 == 0 ? a : b));
    if (i % 2 == 0) continue;
    ASSERT_EQ(MaxDifference(runner->logits(id), alone), 0.0);
  }
}

TEST(Runner, RefusesWithoutChangingAnything) {
  const auto model = OpenTiny({}, OwnGemm());
  SessionOptions options = Options(KvType::kF16, 2);
  options.context = 64;
  auto runner = OpenRunner(model, options);
  const SequenceId a = NewSequence(*runner);
  const SequenceId b = NewSequence(*runner);
  const std::vector<TokenId> tokens = RandomTokens(60, 1);
  ExpectOk(runner->Append(a, tokens));
  const std::vector<StepInput> too_long = {{b, std::span(tokens).first(3)},
                                           {a, std::span(tokens).first(5)}};
  EXPECT_EQ(runner->Step(too_long).error().code, ErrorCode::kContextFull);
  EXPECT_EQ(runner->length(b), 0);
  const std::vector<StepInput> twice = {{b, tokens}, {b, tokens}};
  EXPECT_EQ(runner->Step(twice).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(runner->Append(7, tokens).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(runner->NewSequence().error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(runner->Rewind(a, 61).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(runner->Restore(a, 0).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(runner->length(a), 60);
}

TEST(Runner, Int8IsCloseWithAndWithoutRotation) {
  const auto model = OpenTiny({}, OwnGemm());
  const std::vector<TokenId> tokens = RandomTokens(400, 4);
  auto exact = OpenSession(model, Options(KvType::kF32, 1));
  const std::vector<float> expected = AllLogits(*exact, tokens, 64);
  for (const bool rotation : {true, false}) {
    SessionOptions options = Options(KvType::kQ8, 1);
    options.kv_rotation = rotation;
    auto session = OpenSession(model, options);
    const std::vector<float> logits = AllLogits(*session, tokens, 64);
    EXPECT_LT(MaxDifference(logits, expected), 0.3) << rotation;
    EXPECT_GT(MaxDifference(logits, expected), 0.0) << rotation;
  }
}

}  // namespace
}  // namespace kvant::test
