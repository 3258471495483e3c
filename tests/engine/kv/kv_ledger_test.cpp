// The accounting of a cache by policy: exact needs, and where replays begin.
#include "engine/kv/accounting/ledger.h"

#include <gtest/gtest.h>

#include "tests/engine/kv/block_lists.h"

namespace kvant::kv {
namespace {

constexpr int64_t kPolicyContext = 900;

// Whether a sequence grows to the context in passes of `chunk` tokens with `blocks` blocks, also
// where a first pass of `offset` tokens moves the others' borders.
bool Grows(const GroupKind& kind, int64_t blocks, int64_t chunk, int64_t offset) {
  Lists lists;
  lists.Add(blocks);
  std::vector<AccountedGroup> groups;
  groups.push_back({MakePolicy(kind.policy, kind.window), 32, blocks, 1});
  Ledger ledger(std::move(groups), {kPolicyContext, 1, 0}, lists);
  Sequence sequence = ledger.NewSequence();
  for (int64_t tokens = offset; sequence.length < kPolicyContext; tokens = chunk) {
    if (!ledger.Reserve(sequence, std::min(tokens, kPolicyContext - sequence.length)).ok())
      return false;
    ledger.Commit(sequence);
  }
  return true;
}

TEST(KvLedger, APoolOfExactlyTheNeedIsEnoughAndOneBlockLessIsNot) {
  for (const GroupKind& kind : std::vector<GroupKind>{{"full"},
                                                      {"state"},
                                                      {"window", 1},
                                                      {"window", 32},
                                                      {"window", 100},
                                                      {"window", 800},
                                                      {"sections", 1},
                                                      {"sections", 24},
                                                      {"sections", 32},
                                                      {"sections", 40}}) {
    for (const int64_t chunk : {1, 31, 32, 33, 70}) {
      const int64_t need = MakePolicy(kind.policy, kind.window)->Needed(kPolicyContext, chunk);
      bool one_less = true;
      for (int64_t offset = 1; offset <= chunk; ++offset) {
        ASSERT_TRUE(Grows(kind, need, chunk, offset)) << kind.policy << kind.window << " " << chunk;
        one_less = one_less && Grows(kind, need - 1, chunk, offset);
      }
      // With passes of a whole number of blocks the borders may never be the worst ones.
      EXPECT_FALSE(one_less) << kind.policy << " " << kind.window << " chunk " << chunk;
    }
  }
}

// Every window layer looks back at the layer below, so a replay begins before the sum of their
// spans and the slack: at a whole block, or at the checkpoint of a state before it.
TEST(KvLedger, AReplayBeginsBeforeTheSpansOfAllLayers) {
  const auto begin = [](std::vector<GroupKind> kinds, int64_t length) {
    Lists lists;
    std::vector<AccountedGroup> groups;
    for (const GroupKind& kind : kinds) {
      lists.Add(40);
      groups.push_back({MakePolicy(kind.policy, kind.window), 32, 40, 3});
    }
    Ledger ledger(std::move(groups), {kPolicyContext, 1, 0}, lists);
    Sequence sequence = ledger.NewSequence();
    for (int64_t at = 0; at < 800; at += 50) {
      EXPECT_TRUE(ledger.Reserve(sequence, 50).ok());
      ledger.Commit(sequence);
      if (sequence.length % 150 == 0) ledger.Checkpoint(sequence);
    }
    return ledger.ReplayBegin(sequence, length);
  };
  EXPECT_EQ(begin({{"full"}, {"window", 33}}, 700), 288);  // 700 - 3 * 32 - 256 - 31 = 317
  EXPECT_EQ(begin({{"window", 33}, {"window", 65}}, 700), 96);
  EXPECT_EQ(begin({{"window", 33}}, 100), 0);
  EXPECT_EQ(begin({{"full"}, {"state"}}, 700), 600);  // rows of the full group stay
  EXPECT_EQ(begin({{"window", 2}, {"state"}}, 800), 450);
  // A section is the end of it, whatever the number of layers; 413 is in the one that begins at
  // 400. Beside windows the order of the layers counts, which the ledger does not know.
  EXPECT_EQ(begin({{"full"}, {"sections", 100}}, 700), 384);
  EXPECT_EQ(begin({{"sections", 50}, {"window", 33}}, 700), 160);  // 413 - 3 * 49 - 3 * 32 = 170
  EXPECT_EQ(begin({{"sections", 500}}, 700), 0);
}

// After a replay a sequence can go back as far as the slack says.
TEST(KvLedger, ReplayedSectionsCanRewindLikeOthers) {
  for (const int64_t window : {1, 7, 32, 40, 100, 256, 300}) {
    const auto policy = MakePolicy("sections", window);
    for (const int64_t length : {300, 511, 512, 600, 601, 799}) {
      Lists lists;
      lists.Add(100);
      std::vector<AccountedGroup> groups;
      groups.push_back({MakePolicy("sections", window), 32, 100, 3});
      Ledger ledger(std::move(groups), {kPolicyContext, 2, 0}, lists);
      Sequence sequence = ledger.NewSequence();
      while (sequence.length < kPolicyContext) {
        ASSERT_TRUE(ledger.Reserve(sequence, 50).ok());
        ledger.Commit(sequence);
      }
      const int64_t begin = ledger.ReplayBegin(sequence, length);
      ledger.BeginReplay(sequence, begin);
      while (sequence.length < length) {
        ASSERT_TRUE(ledger.Reserve(sequence, ReplayPiece(sequence.length, length)).ok());
        ledger.Commit(sequence);
      }
      ledger.EndReplay(sequence);
      EXPECT_LE(ledger.RewindLimit(sequence), length - kRewindSlack) << window << " " << length;
      // The next query's section is there from its beginning, as are those of all positions to
      // which the sequence can go back.
      EXPECT_LE(sequence.tables[GroupId{0}].first_position, policy->FirstVisible(length));
      EXPECT_LE(begin, policy->FirstVisible(length - kRewindSlack));
    }
  }
}

// Long after the beginning a replay has what each layer sees through all those below it: for every
// position that is kept afterwards, and so that at most a block more than that is computed.
TEST(KvLedger, AReplayBeginsWhereTheRowsThatAreKeptBegin) {
  for (const int64_t layers : {1, 2, 3}) {
    for (int64_t window = 1; window <= 70; ++window) {
      const int64_t blocks = MakePolicy("window", window)->Needed(kPolicyContext, 50);
      Lists lists;
      lists.Add(blocks);
      std::vector<AccountedGroup> groups;
      groups.push_back({MakePolicy("window", window), 32, blocks, layers});
      Ledger ledger(std::move(groups), {kPolicyContext, 1, 0}, lists);
      Sequence sequence = ledger.NewSequence();
      for (int64_t at = 0; at < 900; at += 50) {
        ASSERT_TRUE(ledger.Reserve(sequence, 50).ok());
        ledger.Commit(sequence);
      }
      for (int64_t length = 600; length <= 600 + kBlockTokens; ++length) {
        // The positions that a window keeps begin with a block. The rows of the last layer see
        // `window` positions of the layer below, and so on down to the first, whose rows come from
        // the tokens alone.
        const int64_t kept = (length - (window - 1) - kRewindSlack) / kBlockTokens * kBlockTokens;
        const int64_t needed = kept - (layers - 1) * (window - 1);
        const int64_t begin = ledger.ReplayBegin(sequence, length);
        ASSERT_LE(begin, needed) << "window " << window << " layers " << layers;
        ASSERT_GT(begin + 2 * kBlockTokens, needed) << "window " << window;
      }
    }
  }
}

// A replay beside a sequence that holds all of its blocks takes as many blocks as are planned for
// the replay. With one block less it finds no room at some length.
TEST(KvLedger, TheRoomOfAReplayIsExact) {
  std::vector<GroupKind> kinds;
  for (const int64_t window : {1, 2, 3, 31, 32, 33, 34, 35, 64, 65, 66, 67, 100}) {
    kinds.push_back({"window", window});
  }
  for (const int64_t window : {1, 16, 32, 64, 96}) kinds.push_back({"sections", window});
  for (const auto& [name, window] : kinds) {
    const auto policy = MakePolicy(name, window);
    for (const int64_t chunk : {1, 17, 32, 80}) {
      const int64_t planned = policy->NeededForReplay(kPolicyContext);
      bool one_less_is_enough = true;
      for (int64_t length = 700; length <= 700 + kBlockTokens; ++length) {
        Lists lists;
        lists.Add(200);
        std::vector<AccountedGroup> groups;
        groups.push_back({MakePolicy(name, window), 32, 200, 2});
        Ledger ledger(std::move(groups), {kPolicyContext, 2, 0}, lists);
        Sequence sequence = ledger.NewSequence();
        while (sequence.length < length) {
          ASSERT_TRUE(
              ledger.Reserve(sequence, std::min<int64_t>(32, length - sequence.length)).ok());
          ledger.Commit(sequence);
        }
        const int64_t held = static_cast<int64_t>(ledger.bytes_used() / 32);
        Sequence copy = ledger.NewSequence();
        ledger.Fork(sequence, copy);
        ledger.BeginReplay(copy, ledger.ReplayBegin(copy, length - 290));
        while (copy.length < length - 290) {
          const int64_t tokens = std::min(chunk, ReplayPiece(copy.length, length - 290));
          ASSERT_TRUE(ledger.Reserve(copy, tokens).ok());
          const int64_t taken = static_cast<int64_t>(ledger.bytes_used() / 32) - held;
          ASSERT_LE(taken, planned) << name << " " << window << " chunk " << chunk;
          one_less_is_enough = one_less_is_enough && taken < planned;
          ledger.Commit(copy);
        }
        ledger.Free(copy);
        ledger.Free(sequence);
      }
      EXPECT_FALSE(one_less_is_enough) << name << " " << window << " chunk " << chunk;
    }
  }
}

TEST(KvLedger, PoliciesAreFoundByName) {
  EXPECT_EQ(MakePolicy("", 0)->name(), "full");
  EXPECT_EQ(MakePolicy("", 5)->name(), "window");
  EXPECT_EQ(MakePolicy("state", 0)->Describe(), "one state");
  EXPECT_EQ(MakePolicy("window", 33)->Describe(), "window 33");
  EXPECT_EQ(MakePolicy("sections", 33)->Describe(), "sections of 33");
  EXPECT_EQ(MakePolicy("ring", 0), nullptr);
}

}  // namespace
}  // namespace kvant::kv
