// Tests the borders of operations on sequences: moves that begin at the border of a block or behind
// a window, rewinds to nothing, and steps of many passes in almost enough memory.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/kv/kv_cache.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

class RunnerBorders : public RunnerKinds {};

INSTANTIATE_TEST_SUITE_P(Kinds, RunnerBorders, testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

// The block in which a hole begins is written to, so a fork that shares it must not notice,
// whichever place of the block that is.
TEST_P(RunnerBorders, MovesFromAnyPlaceInABlockLeaveForksAlone) {
  const auto model = OpenModel();
  const auto runner = OpenRunner(model, Options(GetParam().type, 2));
  std::vector<TokenId> tokens = RandomTokens(100, 9);
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, tokens));
  tokens.push_back(50);
  const std::vector<float> expected = LogitsAlone(model, GetParam().type, tokens);
  for (const int64_t first : {0, 1, 30, 31, 32, 33, 63, 64}) {
    const SequenceId moved = *runner->Fork(id);
    ExpectOk(runner->Prune(moved, first, 20, PrunePositions::kMoved));
    ExpectOk(runner->FreeSequence(moved));
    const SequenceId whole = *runner->Fork(id);
    ExpectOk(runner->Append(whole, std::span(tokens).last(1)));
    ASSERT_EQ(MaxDifference(runner->logits(whole), expected), 0.0) << first;
    ExpectOk(runner->FreeSequence(whole));
  }
}

TEST_P(RunnerBorders, ASequenceThatWasRewoundToNothingIsNew) {
  const auto model = OpenModel();
  const auto runner = OpenRunner(model, Options(GetParam().type, 1));
  const SequenceId id = NewSequence(*runner);
  for (const bool pruned : {false, true}) {
    ExpectOk(runner->Append(id, RandomTokens(600, 1)));
    if (pruned) ExpectOk(runner->Prune(id, 10, 500, PrunePositions::kKept));
    ExpectOk(runner->Rewind(id, 0));
    EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
    const std::vector<TokenId> tokens = RandomTokens(500, 2);
    ExpectOk(runner->Append(id, tokens));
    // Far enough back that windows need a replay, which only a sequence without holes gets.
    ExpectOk(runner->Rewind(id, 100));
    ExpectOk(runner->ComputeLogits(id));
    EXPECT_EQ(MaxDifference(runner->logits(id),
                            LogitsAlone(model, GetParam().type, std::span(tokens).first(100))),
              0.0);
    ExpectOk(runner->Rewind(id, 0));
  }
}

// Without prefixes and forks the planned memory is the need to the byte, and known before the first
// of many passes: a step is refused whole.
TEST_P(RunnerBorders, AStepOfManyPassesIsRefusedWholeOrDoneWhole) {
  const auto model = OpenModel();
  SessionOptions options = Options(GetParam().type, 1);
  options.kv_check = options.kv_poison = false;
  options.threads = 1;
  const std::vector<TokenId> tokens = RandomTokens(900, 3);
  // With 17, passes begin at every place in a block; with the other number, window, slack and chunk
  // need the most blocks at one place only, the last of a block.
  const int64_t border = (3 + 4 * kv::kBlockTokens - GetParam().window) % kv::kBlockTokens;
  for (const int64_t chunk : {int64_t{17}, border}) {
    options.chunk = chunk;
    options.kv_bytes_max = 0;
    const auto plan = PlanMemory(*model, options);
    ASSERT_TRUE(plan.ok());
    for (const uint64_t missing : {0, 1}) {
      options.kv_bytes_max = plan->kv - missing;
      const auto runner = OpenRunner(model, options);
      const SequenceId id = NewSequence(*runner);
      int refused = 0;
      for (const int64_t before : {0, 1, 17, 200}) {
        ExpectOk(runner->Reset(id));
        const size_t begin = static_cast<size_t>(before);
        if (before > 0) ExpectOk(runner->Append(id, std::span(tokens).first(begin)));
        const Status status = runner->Append(id, std::span(tokens).subspan(begin));
        EXPECT_EQ(runner->length(id), status.ok() ? 900 : before) << chunk;
        refused += status.ok() ? 0 : 1;
      }
      EXPECT_EQ(refused > 0, missing > 0) << chunk;
    }
  }
}

// A rewind past the window computes dropped positions again (a replay). These positions must have
// the bits of positions that were never dropped. For each place in a block the test rewinds with a
// replay, then as far as possible without one, and compares logits with a straight run.
TEST_P(RunnerBorders, AfterAReplayTheSlackIsExactAsWell) {
  if (GetParam().window == 0) GTEST_SKIP() << "nothing is ever dropped";
  const auto model = OpenModel();
  SessionOptions options = Options(GetParam().type, 2);
  options.threads = 1;
  options.kv_check = false;
  const auto runner = OpenRunner(model, options);
  const std::vector<TokenId> tokens = RandomTokens(860, 7);
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, tokens));
  for (int64_t target = 448; target < 480; ++target) {
    const SequenceId copy = *runner->Fork(id);
    ExpectOk(runner->Rewind(copy, target));
    int64_t length = target;
    while (length > 1 && runner->Rewind(copy, length - 1, Replay::kForbidden).ok()) --length;
    ASSERT_LE(length, target - 256);
    const auto next = std::span(tokens).subspan(static_cast<size_t>(length), 2);
    for (const TokenId token : next) ExpectOk(runner->Append(copy, {&token, 1}));
    const auto straight = std::span(tokens).first(static_cast<size_t>(length) + 2);
    ASSERT_EQ(MaxDifference(runner->logits(copy), LogitsAlone(model, GetParam().type, straight)),
              0.0)
        << "from " << target << " to " << length;
    ExpectOk(runner->FreeSequence(copy));
  }
}

// A block that two sequences of different lengths share is saved with the rows of the longer one.
TEST_P(RunnerBorders, SharedTailsAreSavedWhole) {
  const auto model = OpenModel();
  const TemporaryFolder folder;
  std::vector<TokenId> tokens = RandomTokens(45, 1);
  const auto runner = OpenRunner(model, Options(GetParam().type, 2));
  const SequenceId longer = NewSequence(*runner);
  ExpectOk(runner->Append(longer, tokens));
  const SequenceId shorter = *runner->Fork(longer);
  ExpectOk(runner->Rewind(shorter, 37));
  for (const std::vector<SequenceId>& ids :
       {std::vector{longer, shorter}, std::vector{shorter, longer}}) {
    ExpectOk(runner->Save(folder / "saved", ids));
    const auto later = OpenRunner(model, Options(GetParam().type, 2));
    const auto loaded = later->Load(folder / "saved");
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    for (const SequenceId id : *loaded) {
      std::vector<TokenId> text(later->tokens(id).begin(), later->tokens(id).end());
      text.push_back(9);
      ExpectOk(later->Append(id, std::span(text).last(1)));
      EXPECT_EQ(MaxDifference(later->logits(id), LogitsAlone(model, GetParam().type, text)), 0.0);
    }
  }
}

// Rows of quantized weights have one arithmetic for few rows and another for many: as many
// sequences as share a pass, and one more, have the bits of each alone.
TEST(RunnerBorder, SequencesBeyondASharedPassHaveTheirOwnBits) {
  TinyShape shape;
  shape.type = "Q8_0";
  shape.ffn = 128;
  const auto model = OpenTiny(shape);
  constexpr int64_t kMost = kSharedRowsMax + 1;
  const auto runner = OpenRunner(model, Options(KvType::kF16, kMost));
  std::vector<SequenceId> ids;
  std::vector<std::vector<TokenId>> texts;
  for (int64_t i = 0; i < kMost; ++i) {
    ids.push_back(NewSequence(*runner));
    texts.push_back(RandomTokens(static_cast<size_t>(2 + i % 3), static_cast<uint32_t>(i)));
    ExpectOk(runner->Append(ids.back(), texts.back()));
  }
  for (const int64_t count : {kMost - 1, kMost}) {
    std::vector<StepInput> inputs;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      texts[i].push_back(static_cast<TokenId>(40 + i));
      inputs.push_back({ids[i], std::span(texts[i]).last(1)});
    }
    const uint64_t passes = runner->stats().passes;
    ExpectOk(runner->Step(inputs));
    EXPECT_EQ(runner->stats().passes - passes, count == kMost ? 2u : 1u);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      EXPECT_EQ(MaxDifference(runner->logits(ids[i]), LogitsAlone(model, KvType::kF16, texts[i])),
                0.0)
          << i << " of " << count;
    }
  }
}

// Without a cache each call computes the older tokens again and shows the rows of its own.
TEST(RunnerBorder, WithoutACacheRowsAndLogitsAreThoseOfTheirTokens) {
  const auto model = OpenTiny({}, OwnGemm());
  const std::vector<TokenId> tokens = RandomTokens(30, 3);
  SessionOptions options = Options(KvType::kF32, 1);
  const auto cached = OpenSession(model, options);
  options.kv_cache = false;
  const auto uncached = OpenSession(model, options);
  const std::vector<float> expected = AllLogits(*cached, tokens, tokens.size());
  const std::vector<float> rows = AllLogits(*uncached, tokens, 7);
  ASSERT_EQ(rows.size(), expected.size());
  EXPECT_LT(MaxDifference(rows, expected), 1e-3);
  ExpectOk(uncached->Rewind(20));
  ExpectOk(uncached->ComputeLogits());
  EXPECT_EQ(uncached->length(), 20);
  const auto row = std::span(expected).subspan(19 * static_cast<size_t>(kTinyVocab),
                                               static_cast<size_t>(kTinyVocab));
  EXPECT_LT(MaxDifference(uncached->logits(), row), 1e-3);
}

TinyShape OneLayer(int64_t window) {
  TinyShape shape;
  shape.layers = 1;
  shape.window = window;
  shape.context = 900;
  return shape;
}

// Positions that a window has dropped before a move are not there after it, although the window
// would reach them, as if they had been pruned. Around them lie blocks of poison.
TEST(RunnerBorder, AMoveBehindAWindowShowsNothingThatWasDropped) {
  const auto model = OpenTiny(OneLayer(100), OwnGemm());
  const auto runner = OpenRunner(model, Options(KvType::kF32, 2));
  const std::vector<TokenId> tokens = RandomTokens(700, 9);
  const TemporaryFolder folder;
  for (const int64_t first : {3, 10, 32, 45}) {
    SequenceId moved = NewSequence(*runner);
    ExpectOk(runner->Append(moved, tokens));
    ExpectOk(runner->Prune(moved, first, 45, PrunePositions::kMoved));
    if (first > 3) {  // from a file as well
      ExpectOk(runner->Save(folder / "saved", {&moved, 1}));
      ExpectOk(runner->FreeSequence(moved));
      const auto loaded = runner->Load(folder / "saved");
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      moved = loaded->front();
    }
    const SequenceId hidden = NewSequence(*runner);
    ExpectOk(runner->Append(hidden, std::span(tokens).first(static_cast<size_t>(first))));
    ExpectOk(runner->Append(hidden, std::span(tokens).last(45)));
    ExpectOk(runner->Prune(hidden, 0, 45, PrunePositions::kKept));
    ASSERT_EQ(runner->length(moved), runner->length(hidden));
    for (const TokenId token : RandomTokens(70, 4)) {
      for (const SequenceId id : {moved, hidden}) ExpectOk(runner->Append(id, {&token, 1}));
      ASSERT_LT(MaxDifference(runner->logits(moved), runner->logits(hidden)), 1e-4) << first;
    }
    ExpectOk(runner->FreeSequence(moved));
    ExpectOk(runner->FreeSequence(hidden));
  }
}

// Keys that move are rotated by the frequencies of their own layer. They are compared in double
// precision, with the two rotary bases of tiny_model.h. Values stay as they are. The parameter is
// the number of last tokens that move; the old places of 100 tokens overlap with the new ones.
class RunnerMoves : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(LastTokens, RunnerMoves, testing::Values(50, 100));

TEST_P(RunnerMoves, MovedKeysAreTurnedByTheRopeOfTheirLayer) {
  const auto runner = OpenRunner(OpenTiny(MixedShape(33), OwnGemm()), Options(KvType::kF32, 1));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(120, 1)));
  const auto before = runner->Export({&id, 1}, KvLayout::kBhsd);
  ExpectOk(runner->Prune(id, 10, GetParam(), PrunePositions::kMoved));
  const auto after = runner->Export({&id, 1}, KvLayout::kBhsd);
  ASSERT_TRUE(before.ok() && after.ok());
  constexpr size_t kHeads = 2;
  constexpr size_t kDim = 16;
  constexpr size_t kRows = 32;  // of the last tokens, which windows hold as well
  const auto distance = static_cast<double>(120 - 10 - GetParam());
  for (int layer = 0; layer < 4; ++layer) {
    const double base = layer % 2 == 0 ? 300 : 30000;
    for (const char* part : {"key", "value"}) {
      const std::string name = fmt::format("past_key_values.{}.{}", layer, part);
      const KvTensor& old = *before->Find(name);
      const KvTensor& now = *after->Find(name);
      const auto row_of = [&](const KvTensor& tensor, size_t head, size_t row) {
        const size_t rows = static_cast<size_t>(tensor.shape[2]);
        return tensor.values.data() + (head * rows + rows - kRows + row) * kDim;
      };
      for (size_t i = 0; i < kHeads * kRows * kDim / 2; ++i) {
        const size_t pair = i % (kDim / 2);
        const float* from = row_of(old, i / (kRows * kDim / 2), i / (kDim / 2) % kRows);
        const float* to = row_of(now, i / (kRows * kDim / 2), i / (kDim / 2) % kRows);
        const double angle =
            part[0] == 'k' ? -distance * std::pow(base, -2.0 * static_cast<double>(pair) / kDim)
                           : 0.0;
        const double x = static_cast<double>(from[pair]);
        const double y = static_cast<double>(from[pair + kDim / 2]);
        ASSERT_NEAR(to[pair], x * std::cos(angle) - y * std::sin(angle), 1e-4) << name;
        ASSERT_NEAR(to[pair + kDim / 2], x * std::sin(angle) + y * std::cos(angle), 1e-4) << name;
      }
    }
  }
}

}  // namespace
}  // namespace kvant::test
