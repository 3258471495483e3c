// Rules of Runner that only few calls meet: what a sequence is after it was emptied, what is
// refused for those that their tokens alone do not give, and what a call that fails leaves behind.
#include <gtest/gtest.h>

#include "engine/run/engine.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

// Tokens that a new sequence with this text takes from what is known.
uint64_t Reused(Runner& runner, std::span<const TokenId> tokens) {
  const SequenceId id = NewSequence(runner);
  const uint64_t before = runner.stats().tokens_reused;
  ExpectOk(runner.Append(id, tokens));
  ExpectOk(runner.FreeSequence(id));
  return runner.stats().tokens_reused - before;
}

TinyShape WithWindow(int64_t window) {
  TinyShape shape;
  shape.window = window;
  shape.context = 900;
  return shape;
}

// ---- As new -------------------------------------------------------------------------------------

// Whatever a sequence was, once it is empty what it holds can be known and computed again.
TEST(RunnerEdges, AnEmptiedSequenceIsLikeANewOne) {
  for (const char* how : {"reset", "free", "rewind", "reorder"}) {
    const auto model = OpenTiny(WithWindow(33), OwnGemm());
    const auto runner = OpenKnowing(model);
    SequenceId id = NewSequence(*runner);
    ExpectOk(runner->Append(id, RandomTokens(600, 1)));
    ExpectOk(runner->Prune(id, 10, 500, PrunePositions::kMoved));
    const std::string_view way = how;
    if (way == "reset") ExpectOk(runner->Reset(id));
    if (way == "rewind") ExpectOk(runner->Rewind(id, 0));
    if (way == "free") ExpectOk(runner->FreeSequence(id));
    if (way == "reorder") {
      const SequenceId empty = NewSequence(*runner);
      ExpectOk(runner->Reorder(std::vector{id, empty}, std::vector{1, 1}));
      ExpectOk(runner->FreeSequence(empty));
    }
    if (!runner->Has(id)) id = NewSequence(*runner);
    const std::vector<TokenId> tokens = RandomTokens(600, 2);
    ExpectOk(runner->Append(id, tokens));
    EXPECT_EQ(Reused(*runner, tokens), 599u) << how;  // all but the last one, of `id`
    ExpectOk(runner->Rewind(id, 100));                // a replay
    EXPECT_EQ(runner->length(id), 100);
  }
}

// Blocks become known as they fill, also where nobody looked for a prefix before.
TEST(RunnerEdges, AScoredTextIsKnownWhateverTheSequenceHeldBefore) {
  const auto runner = OpenKnowing(OpenTiny({}, OwnGemm()));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(300, 1)));
  ExpectOk(runner->Reset(id));
  const std::vector<TokenId> tokens = RandomTokens(100, 2);
  ExpectOk(runner->AppendScoring(id, tokens, 0, {}));
  EXPECT_EQ(Reused(*runner, tokens), 99u);
}

TEST(RunnerEdges, AnImportOfNothingIsANewSequence) {
  const auto runner = OpenKnowing(OpenTiny({}, OwnGemm()));
  const SequenceId empty = NewSequence(*runner);
  const auto tensors = runner->Export({&empty, 1}, KvLayout::kBhsd);
  ASSERT_TRUE(tensors.ok()) << tensors.error().message;
  const auto imported = runner->Import(*tensors, KvLayout::kBhsd);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  const std::vector<TokenId> tokens = RandomTokens(100, 2);
  ExpectOk(runner->Append(imported->front(), tokens));
  EXPECT_EQ(Reused(*runner, tokens), 99u);
}

// ---- Memory -------------------------------------------------------------------------------------

// Every known block can be given up, leaf by leaf up to the first.
TEST(RunnerEdges, AllKnownBlocksMakeRoom) {
  const auto model = OpenTiny({}, OwnGemm());
  const uint64_t block = OpenKnowing(model)->stats().groups[0].block_bytes;
  const auto runner = OpenKnowing(model, 2, 8 * block);
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(97, 1)));
  ExpectOk(runner->FreeSequence(id));
  EXPECT_EQ(runner->stats().kv_bytes_used, 3 * block);
  const SequenceId all = NewSequence(*runner);
  ExpectOk(runner->Append(all, RandomTokens(8 * 32, 2)));
  EXPECT_EQ(runner->stats().kv_bytes_used, 8 * block);
}

TEST(RunnerEdges, AFileWithMoreSequencesThanThereIsRoomForLeavesNothing) {
  const auto model = OpenTiny({}, OwnGemm());
  const TemporaryFolder folder;
  const auto runner = OpenRunner(model, Options(KvType::kF16, 3));
  std::vector<SequenceId> ids;
  for (uint32_t i = 0; i < 3; ++i) {
    ids.push_back(NewSequence(*runner));
    ExpectOk(runner->Append(ids.back(), RandomTokens(40, i)));
  }
  ExpectOk(runner->Save(folder / "saved", ids));
  for (const size_t freed : {0, 1, 2}) {  // room for so many of the three
    const RunnerStats before = runner->stats();
    const auto loaded = runner->Load(folder / "saved");
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, ErrorCode::kOutOfMemory);
    EXPECT_EQ(runner->stats().sequences, before.sequences);
    EXPECT_EQ(runner->stats().kv_bytes_used, before.kv_bytes_used);
    ExpectOk(runner->Check());
    ExpectOk(runner->FreeSequence(ids[freed]));
  }
  EXPECT_TRUE(runner->Load(folder / "saved").ok());
}

// Sequences that fill the pools of their number can still have their last logits computed again,
// and go back further than a window holds: the pools have room for that beside them.
TEST(RunnerEdges, FullSequencesCanComputeTheirLastLogitsAgain) {
  for (const int64_t window : {0, 3, 33}) {
    TinyShape shape = WithWindow(window);
    shape.context = 640;
    const auto model = OpenTiny(shape, OwnGemm());
    for (const int64_t chunk : {1, 512}) {
      SessionOptions options = Options(KvType::kF32, 2);
      options.threads = 1;
      options.chunk = chunk;
      const auto runner = OpenRunner(model, options);
      const std::vector<TokenId> tokens = RandomTokens(640, 1);
      std::vector<SequenceId> ids = {NewSequence(*runner), NewSequence(*runner)};
      for (const SequenceId id : ids) ExpectOk(runner->AppendScoring(id, tokens, 640, {}));
      for (const SequenceId id : ids) {
        ASSERT_TRUE(runner->logits(id).empty());
        ExpectOk(runner->ComputeLogits(id));
        EXPECT_EQ(MaxDifference(runner->logits(id), LogitsAlone(model, KvType::kF32, tokens)), 0.0)
            << "window " << window << " chunk " << chunk;
      }
      ExpectOk(runner->Rewind(ids[0], 300));
      ExpectOk(runner->ComputeLogits(ids[0]));
      EXPECT_EQ(MaxDifference(runner->logits(ids[0]),
                              LogitsAlone(model, KvType::kF32, std::span(tokens).first(300))),
                0.0);
    }
  }
}

// A replay takes a ring of passes that end where blocks do, whatever the session's chunk is.
TEST(RunnerEdges, AReplayFitsIntoABudgetOfARingMore) {
  const auto model = OpenTiny(WithWindow(33), OwnGemm());
  const std::vector<TokenId> tokens = RandomTokens(700, 1);
  // 32 positions that are seen and 256 of slack are nine blocks; one more is being computed.
  constexpr uint64_t kRing = 10;
  for (const int64_t chunk : {17, 32, 512}) {
    uint64_t budget = 0;  // none for the first runner, which tells what the sequence holds
    for (const uint64_t missing : {uint64_t{0}, uint64_t{0}, uint64_t{1}}) {
      SessionOptions options = Options(KvType::kF32, 1);
      options.threads = 1;
      options.chunk = chunk;
      options.kv_bytes_max = budget == 0 ? 0 : budget - missing;
      const auto runner = OpenRunner(model, options);
      const SequenceId id = NewSequence(*runner);
      for (size_t at = 0; at < 700; at += 28) {
        ExpectOk(runner->Append(id, std::span(tokens).subspan(at, 28)));
      }
      const RunnerStats stats = runner->stats();
      budget = stats.kv_bytes_used + kRing * stats.groups[0].block_bytes;
      const Status status = runner->Rewind(id, 380);
      EXPECT_EQ(status.ok(), missing == 0) << "chunk " << chunk;
      EXPECT_EQ(runner->length(id), missing == 0 ? 380 : 700);
    }
  }
}

// ---- What tokens alone do not give --------------------------------------------------------------

TEST(RunnerEdges, WhatTokensAloneDoNotGiveIsNotComputedAgain) {
  const auto model = OpenTiny(WithWindow(33), OwnGemm());
  const auto runner = OpenRunner(model, Options(KvType::kF32, 3));
  const auto limit_of = [&](SequenceId id) {
    int64_t limit = runner->length(id);
    while (true) {
      const SequenceId copy = *runner->Fork(id);
      const bool can = runner->Rewind(copy, limit - 1, Replay::kForbidden).ok();
      ExpectOk(runner->FreeSequence(copy));
      if (!can) return limit;
      --limit;
    }
  };
  SequenceId pruned = NewSequence(*runner);
  ExpectOk(runner->Append(pruned, RandomTokens(700, 1)));
  const SequenceId plain = *runner->Fork(pruned);
  ExpectOk(runner->Prune(pruned, 100, 450, PrunePositions::kKept));
  EXPECT_TRUE(runner->logits(pruned).empty());
  const int64_t limit = limit_of(pruned);
  ASSERT_EQ(limit, limit_of(plain));
  // Below the limit only a sequence of its tokens alone goes back, by a replay.
  EXPECT_EQ(runner->Rewind(pruned, limit - 1).error().code, ErrorCode::kNotSupported);
  EXPECT_EQ(runner->length(pruned), 700);
  ExpectOk(runner->Rewind(*runner->Fork(plain), limit - 1));
  // At the limit the window has dropped what the last token saw.
  ExpectOk(runner->Rewind(pruned, limit));
  EXPECT_EQ(runner->ComputeLogits(pruned).error().code, ErrorCode::kNotSupported);
  EXPECT_EQ(runner->length(pruned), limit);
  EXPECT_TRUE(runner->logits(pruned).empty());
  // Around a hole nothing moves.
  EXPECT_EQ(runner->Prune(pruned, 10, 20, PrunePositions::kMoved).error().code,
            ErrorCode::kNotSupported);
  EXPECT_EQ(runner->length(pruned), limit);
}

// ---- Steps that fail ----------------------------------------------------------------------------

// Cancelled between the rows of a pass, the step shows no more of them and undoes the pass; what
// complete passes took in stays, without logits.
TEST(RunnerEdges, AStepThatIsCancelledAmongItsLogitsShowsNoMore) {
  const auto model = OpenTiny({}, OwnGemm());
  SessionOptions options = Options(KvType::kF32, 1);
  options.threads = 1;
  options.chunk = 100;
  const std::vector<TokenId> tokens = RandomTokens(250, 1);
  for (const int64_t at : {0, 31, 32, 99, 100, 140, 199, 200}) {
    const auto runner = OpenRunner(model, options);
    const SequenceId id = NewSequence(*runner);
    std::atomic<bool> cancel = false;
    int64_t shown = -1;
    StepOptions step;
    step.cancel = &cancel;
    step.rows = [&](size_t, int64_t token, std::span<const float>) -> Status {
      shown = token;
      if (token == at) cancel = true;
      return {};
    };
    const StepInput input{id, tokens, Logits::kAll};
    const Status status = runner->Step({&input, 1}, step);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
    // The head takes 32 rows at a time. After the last of a pass, only the next pass is cancelled.
    const int64_t pass = at / 100 * 100;
    const int64_t head_end = std::min(pass + 100, pass + (at - pass) / 32 * 32 + 32);
    EXPECT_EQ(shown, head_end - 1) << at;
    EXPECT_EQ(runner->length(id), head_end == pass + 100 ? pass + 100 : pass) << at;
    EXPECT_TRUE(runner->logits(id).empty()) << at;
    ExpectOk(runner->Check());
  }
}

// Parts of a pass that find no room leave the rows of the others where they are.
TEST(RunnerEdges, ThePartsThatFindRoomHaveTheirOwnLogits) {
  const auto model = OpenTiny({}, OwnGemm());
  SessionOptions options = Options(KvType::kF32, 3);
  options.threads = 1;
  options.kv_bytes_max = 2 * OpenRunner(model, options)->stats().groups[0].block_bytes;
  auto created = run::Engine::Create(model, options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  run::Engine& parts = **created;
  const std::vector<std::vector<TokenId>> texts = {RandomTokens(5, 1), RandomTokens(40, 2),
                                                   RandomTokens(7, 3)};
  std::vector<run::PassPart> pass;
  for (const std::vector<TokenId>& text : texts) {
    run::SequenceState* const state = parts.sequences->Find(*parts.sequences->New());
    pass.push_back({&state->kv, {}, text, text.size() - 1});
  }
  std::vector<size_t> shown;
  ExpectOk(parts.executor->RunPass(pass, nullptr, [&](std::span<const run::LogitRow> rows) {
    for (const run::LogitRow& row : rows) {
      shown.push_back(row.part);
      EXPECT_EQ(row.token + 1, texts[row.part].size());
      EXPECT_EQ(MaxDifference(row.logits, LogitsAlone(model, KvType::kF32, texts[row.part])), 0.0)
          << row.part;
    }
    return Status();
  }));
  EXPECT_EQ(shown, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(pass[1].status.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(pass[1].kv->length, 0);
  EXPECT_EQ(pass[2].kv->length, 7);
  ExpectOk(parts.sequences->Check());
}

// However often a step is ended by its caller, the logits of its other sequences are given back.
TEST(RunnerEdges, StepsThatFailKeepNoRowsOfLogits) {
  const auto model = OpenTiny({}, OwnGemm());
  SessionOptions options = Options(KvType::kF32, 2);
  options.threads = 1;
  auto created = run::Engine::Create(model, options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  run::Engine& parts = **created;
  const std::vector<TokenId> tokens = RandomTokens(5, 1);
  const StepInput inputs[] = {{*parts.sequences->New(), tokens},
                              {*parts.sequences->New(), tokens, Logits::kAll}};
  StepOptions step;
  step.rows = [](size_t, int64_t, std::span<const float>) -> Status {
    return MakeError(ErrorCode::kInvalid, "enough");
  };
  EXPECT_FALSE(parts.stepper->Step(inputs, step).ok());
  const size_t rows = parts.sequences->rows().rows();
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(parts.stepper->Step(inputs, step).ok());
  EXPECT_EQ(parts.sequences->rows().rows(), rows);
}

}  // namespace
}  // namespace kvant::test
