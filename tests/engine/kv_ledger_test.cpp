// The accounting of a cache by policy: exact needs, and where replays begin.
#include "engine/kv/accounting/ledger.h"

#include <gtest/gtest.h>

#include "tests/engine/block_lists.h"

namespace kvant::kv {
namespace {

constexpr int64_t kContext = 900;

// Whether a sequence grows to the context in passes of `chunk` tokens with so many blocks, also
// where a first pass of `offset` tokens moves the others' borders.
bool Grows(const GroupKind& kind, int64_t blocks, int64_t chunk, int64_t offset) {
  Lists lists;
  lists.Add(blocks);
  std::vector<AccountedGroup> groups;
  groups.push_back({MakePolicy(kind.policy, kind.window), 32, blocks, 1});
  Ledger ledger(std::move(groups), {kContext, 1, 0}, lists);
  Sequence sequence = ledger.NewSequence();
  for (int64_t tokens = offset; sequence.length < kContext; tokens = chunk) {
    if (!ledger.Reserve(sequence, std::min(tokens, kContext - sequence.length)).ok()) return false;
    ledger.Commit(sequence);
  }
  return true;
}

TEST(KvLedger, APoolOfExactlyTheNeedIsEnoughAndOneBlockLessIsNot) {
  for (const GroupKind& kind : std::vector<GroupKind>{
           {"full"}, {"state"}, {"window", 1}, {"window", 32}, {"window", 100}, {"window", 800}}) {
    for (const int64_t chunk : {1, 31, 32, 33, 70}) {
      const int64_t need = MakePolicy(kind.policy, kind.window)->Needed(kContext, chunk);
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
    Ledger ledger(std::move(groups), {kContext, 1, 0}, lists);
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
  EXPECT_EQ(begin({{"full"}, {"state"}}, 700), 300);
  EXPECT_EQ(begin({{"window", 2}, {"state"}}, 800), 450);
}

TEST(KvLedger, PoliciesAreFoundByName) {
  EXPECT_EQ(MakePolicy("", 0)->name(), "full");
  EXPECT_EQ(MakePolicy("", 5)->name(), "window");
  EXPECT_EQ(MakePolicy("state", 0)->Describe(), "one state");
  EXPECT_EQ(MakePolicy("window", 33)->Describe(), "window 33");
  EXPECT_EQ(MakePolicy("ring", 0), nullptr);
}

}  // namespace
}  // namespace kvant::kv
