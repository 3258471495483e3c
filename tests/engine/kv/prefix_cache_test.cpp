// Tests what the cache of known prefixes may share, and what it forgets first. It may share whole
// blocks that every window still has, of sequences that hold what their tokens alone give.
#include <gtest/gtest.h>

#include <random>

#include "engine/kv/kv_cache.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

// Tokens that a new sequence with this text takes from what is known; its bits are checked.
uint64_t Reused(Runner& runner, const std::shared_ptr<const Model>& model,
                std::span<const TokenId> tokens) {
  const SequenceId id = NewSequence(runner);
  const uint64_t before = runner.stats().tokens_reused;
  ExpectOk(runner.Append(id, tokens));
  EXPECT_EQ(MaxDifference(runner.logits(id), LogitsAlone(model, KvType::kF32, tokens)), 0.0);
  ExpectOk(runner.FreeSequence(id));
  return runner.stats().tokens_reused - before;
}

std::vector<TokenId> TokensOf(const Runner& runner, SequenceId id) {
  return {runner.tokens(id).begin(), runner.tokens(id).end()};
}

TEST(PrefixCache, TheLastTokenIsNeverTakenFromIt) {
  const auto model = OpenTiny(MixedShape(7), OwnGemm());
  for (const size_t length : {31, 32, 33, 63, 64, 65, 96}) {
    const auto runner = OpenKnowing(model);
    const std::vector<TokenId> tokens = RandomTokens(length, 1);
    EXPECT_EQ(Reused(*runner, model, tokens), 0u);
    EXPECT_EQ(Reused(*runner, model, tokens), (length - 1) / 32 * 32) << length;
  }
}

// A long first pass has dropped the early blocks of windows before they become known. A prefix is
// used only where all positions that its next token sees are there.
TEST(PrefixCache, PrefixesEndWhereWindowsAreWhole) {
  for (const int64_t window : {1, 2, 33, 34, 35}) {
    TinyShape shape = MixedShape(window);
    shape.context = 900;
    const auto model = OpenTiny(shape, OwnGemm());
    const std::vector<TokenId> tokens = RandomTokens(512, 5);
    for (int64_t depth = 4; depth < 10; ++depth) {
      const auto runner = OpenKnowing(model);
      EXPECT_EQ(Reused(*runner, model, tokens), 0u);
      const int64_t dropped =
          (512 - window + 1 - kv::kRewindSlack) / kv::kBlockTokens * kv::kBlockTokens;
      const int64_t length = depth * kv::kBlockTokens;
      // A window of one position needs nothing but the next token itself.
      const bool whole = window == 1 || length - window + 1 >= dropped;
      const auto text = std::span(tokens).first(static_cast<size_t>(length) + 1);
      EXPECT_EQ(Reused(*runner, model, text), whole ? static_cast<uint64_t>(length) : 0u)
          << "window " << window << " depth " << depth;
    }
  }
}

// Whatever a sequence went through, blocks that become known afterwards are those of its tokens.
TEST(PrefixCache, KnowsWhatSequencesHoldNow) {
  const auto model = OpenTiny(MixedShape(7), OwnGemm());
  const auto runner = OpenKnowing(model);
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(300, 1)));
  ExpectOk(runner->Reset(id));
  ExpectOk(runner->Append(id, RandomTokens(100, 2)));
  EXPECT_EQ(Reused(*runner, model, RandomTokens(100, 2)), 99u);
  ExpectOk(runner->Rewind(id, 40));
  ExpectOk(runner->Append(id, RandomTokens(60, 3)));
  EXPECT_EQ(Reused(*runner, model, TokensOf(*runner, id)), 99u);
  // A fork that grows by one block.
  ExpectOk(runner->Reset(id));
  ExpectOk(runner->Append(id, RandomTokens(33, 4)));
  const SequenceId fork = *runner->Fork(id);
  ExpectOk(runner->Append(fork, RandomTokens(32, 5)));
  EXPECT_EQ(Reused(*runner, model, TokensOf(*runner, fork)), 64u);
  // A loaded sequence is known at once.
  const TemporaryFolder folder;
  ExpectOk(runner->Save(folder / "saved", {&fork, 1}));
  const auto later = OpenKnowing(model);
  const auto loaded = later->Load(folder / "saved");
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(Reused(*later, model, TokensOf(*later, loaded->front())), 64u);
}

// A text that begins like that of another sequence for a block or more takes all of the beginning,
// in the middle of a block, too, and both go on; when the other one is gone, whole blocks are left.
TEST(PrefixCache, SequencesShareEveryToken) {
  for (const int64_t window : {7, 40}) {
    const auto model = OpenTiny(MixedShape(window), OwnGemm());
    const auto runner = OpenKnowing(model);
    const std::vector<TokenId> first = RandomTokens(100, 1);
    const std::vector<TokenId> more = RandomTokens(20, 3);
    const SequenceId id = NewSequence(*runner);
    ExpectOk(runner->Append(id, first));
    for (const size_t common : {1, 31, 33, 77, 96, 99, 100}) {
      std::vector<TokenId> text(first.begin(), first.begin() + static_cast<int64_t>(common));
      text.insert(text.end(), more.begin(), more.end());
      if (common < first.size() && text[common] == first[common]) text[common] ^= 1;
      EXPECT_EQ(Reused(*runner, model, text), common < 32 ? 0 : common) << window;
    }
    ExpectOk(runner->Append(id, more));
    EXPECT_EQ(
        MaxDifference(runner->logits(id), LogitsAlone(model, KvType::kF32, TokensOf(*runner, id))),
        0.0);
    ExpectOk(runner->FreeSequence(id));
    EXPECT_EQ(Reused(*runner, model, first), 96u);
  }
}

// After a prune or an import the cache is not what the tokens alone give, in copies neither.
TEST(PrefixCache, SequencesWithHolesOrFromElsewhereStayUnknown) {
  const auto model = OpenTiny({}, OwnGemm());
  const TemporaryFolder folder;
  for (const char* how : {"kept", "moved", "fork", "reorder", "restore", "load", "import"}) {
    const std::string_view way = how;
    const auto runner = OpenKnowing(model);
    SequenceId id = NewSequence(*runner);
    ExpectOk(runner->Append(id, RandomTokens(100, 1)));
    ExpectOk(
        runner->Prune(id, 10, 50, way == "kept" ? PrunePositions::kKept : PrunePositions::kMoved));
    if (way == "fork") id = *runner->Fork(id);
    if (way == "reorder") {
      const SequenceId other = NewSequence(*runner);
      ExpectOk(runner->Reorder(std::vector{id, other}, std::vector{0, 0}));
      id = other;
    }
    if (way == "restore") {
      const SnapshotId snapshot = *runner->TakeSnapshot(id);
      ExpectOk(runner->Reset(id));
      ExpectOk(runner->Restore(id, snapshot));
    }
    if (way == "load") {
      ExpectOk(runner->Save(folder / "saved", {&id, 1}));
      id = runner->Load(folder / "saved")->front();
    }
    if (way == "import") {
      const auto tensors = runner->Export({&id, 1}, KvLayout::kBhsd);
      ASSERT_TRUE(tensors.ok());
      id = runner->Import(*tensors, KvLayout::kBhsd)->front();
    }
    ExpectOk(runner->Append(id, RandomTokens(70, 2)));
    const std::vector<TokenId> tokens = TokensOf(*runner, id);
    // The first block of a hole behind position 10 is that of the first text, not of this one.
    EXPECT_EQ(Reused(*runner, model, tokens), way == "kept" ? 96u : 0u) << how;
  }
}

TEST(PrefixCache, ARefusedStepGivesPrefixesBack) {
  const auto model = OpenTiny({}, OwnGemm());
  const uint64_t block = OpenKnowing(model)->stats().groups[0].block_bytes;
  const auto runner = OpenKnowing(model, 3, 6 * block);
  const SequenceId first = NewSequence(*runner);
  const std::vector<TokenId> tokens = RandomTokens(300, 1);
  ExpectOk(runner->Append(first, std::span(tokens).first(97)));
  const SequenceId second = NewSequence(*runner);
  const RunnerStats before = runner->stats();
  EXPECT_EQ(runner->Append(second, tokens).error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(runner->length(second), 0);
  EXPECT_EQ(runner->stats().tokens_reused, before.tokens_reused);
  EXPECT_EQ(runner->stats().kv_bytes_used, before.kv_bytes_used);
  ExpectOk(runner->Check());
}

// Under pressure the text that was used last stays known.
TEST(PrefixCache, ForgetsFirstWhatWasUsedLongestAgo) {
  const auto model = OpenTiny({}, OwnGemm());
  const uint64_t block = OpenKnowing(model)->stats().groups[0].block_bytes;
  for (const bool again : {false, true}) {
    const auto runner = OpenKnowing(model, 2, 12 * block);
    const std::vector<TokenId> a = RandomTokens(97, 1);
    const std::vector<TokenId> b = RandomTokens(97, 2);
    EXPECT_EQ(Reused(*runner, model, a), 0u);
    EXPECT_EQ(Reused(*runner, model, b), 0u);
    if (again) {
      EXPECT_EQ(Reused(*runner, model, a), 96u);
    }
    const SequenceId id = NewSequence(*runner);
    ExpectOk(runner->Append(id, RandomTokens(200, 3)));  // seven blocks beside six known ones
    ExpectOk(runner->FreeSequence(id));
    EXPECT_EQ(Reused(*runner, model, again ? a : b), 96u);
    EXPECT_EQ(Reused(*runner, model, again ? b : a), 64u);
  }
}

// ---- A budget of its own ------------------------------------------------------------------------

std::unique_ptr<Runner> OpenWithin(const std::shared_ptr<const Model>& model, uint64_t bytes) {
  SessionOptions options = Options(KvType::kF32, 4);
  options.prefix_cache = true;
  options.prefix_bytes_max = bytes;
  options.threads = 1;
  return OpenRunner(model, options);
}

TEST(PrefixCache, ABudgetOfNothingKeepsNothing) {
  const auto model = OpenTiny({}, OwnGemm());
  const auto runner = OpenWithin(model, 0);
  const std::vector<TokenId> tokens = RandomTokens(97, 1);
  EXPECT_EQ(Reused(*runner, model, tokens), 0u);
  EXPECT_EQ(Reused(*runner, model, tokens), 0u);
  EXPECT_EQ(runner->stats().prefix_bytes, 0u);
  EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
}

// A prompt that is longer than fits keeps its beginning, and pushes out what was used before it.
TEST(PrefixCache, ABudgetKeepsTheBeginningOfTheLatest) {
  const auto model = OpenTiny({}, OwnGemm());
  const uint64_t block = OpenKnowing(model)->stats().groups[0].block_bytes;
  const std::vector<TokenId> a = RandomTokens(300, 1);
  const std::vector<TokenId> b = RandomTokens(97, 2);
  const auto runner = OpenWithin(model, 4 * block + block / 2);
  EXPECT_EQ(Reused(*runner, model, a), 0u);
  EXPECT_EQ(runner->stats().prefix_bytes, 4 * block);
  EXPECT_EQ(Reused(*runner, model, a), 128u);
  EXPECT_EQ(Reused(*runner, model, b), 0u);
  EXPECT_EQ(runner->stats().prefix_bytes, 4 * block);
  EXPECT_EQ(Reused(*runner, model, b), 96u);
  EXPECT_EQ(Reused(*runner, model, a), 32u);
}

// The budget never takes away what a running sequence needs.
TEST(PrefixCache, ABudgetTakesNothingFromSequencesThatRun) {
  const auto model = OpenTiny({}, OwnGemm());
  const uint64_t block = OpenKnowing(model)->stats().groups[0].block_bytes;
  const auto runner = OpenWithin(model, 3 * block);
  const std::vector<TokenId> tokens = RandomTokens(200, 1);
  const SequenceId running = NewSequence(*runner);
  ExpectOk(runner->Append(running, std::span(tokens).first(150)));
  EXPECT_EQ(Reused(*runner, model, RandomTokens(200, 2)), 0u);
  ExpectOk(runner->Append(running, std::span(tokens).subspan(150)));
  EXPECT_EQ(MaxDifference(runner->logits(running), LogitsAlone(model, KvType::kF32, tokens)), 0.0);
  ExpectOk(runner->Check());
}

TEST_P(RunnerKinds, RandomTextsKeepWithinTheBudgetOfPrefixes) {
  const auto model = OpenModel();
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    SessionOptions options = Options(GetParam().type, 3);
    options.prefix_cache = true;
    uint64_t block = 0;
    for (const KvGroupStats& group : OpenRunner(model, options)->stats().groups) {
      block += group.block_bytes;
    }
    options.prefix_bytes_max = seed * 5 * block / 2;
    const auto runner = OpenRunner(model, options);
    std::mt19937 random(seed);
    for (int round = 0; round < 30; ++round) {
      std::vector<TokenId> tokens = RandomTokens(40 + random() % 80, random() % 4);
      const std::vector<TokenId> end = RandomTokens(1 + random() % 40, random());
      tokens.insert(tokens.end(), end.begin(), end.end());
      const SequenceId id = NewSequence(*runner);
      ExpectOk(runner->Append(id, tokens));
      EXPECT_LE(runner->stats().prefix_bytes, options.prefix_bytes_max);
      if (runner->stats().sequences > 2) ExpectOk(runner->FreeSequence(id));
      ExpectOk(runner->Check());
    }
    EXPECT_GT(runner->stats().prefix_bytes, 0u);
    EXPECT_GT(runner->stats().tokens_reused, 0u);
  }
}

}  // namespace
}  // namespace kvant::test
