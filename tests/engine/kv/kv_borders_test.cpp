// Tests the borders of operations on the block cache, to the position and to the block: what a step
// that is given up leaves, what a budget of exactly the need grants, and which blocks are filled
// when they are freed.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/result.h"
#include "cpu/kv_format_list.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_rows.h"
#include "tests/engine/kv/make_cache.h"

namespace kvant::kv {
namespace {

// A full group and one with a window of 7, one layer each.
CacheOptions TwoSmallGroups(int64_t sequences = 2) {
  const auto f32 = KvType::kF32;
  CacheOptions options;
  options.groups = {{0, 1, 4, 4, f32, f32, {0}}, {7, 1, 4, 4, f32, f32, {1}}};
  options.context = 600;
  options.chunk = 80;
  options.sequences = sequences;
  return options;
}

void Grow(Cache& cache, Sequence& sequence, int64_t tokens) {
  ASSERT_TRUE(cache.Reserve(sequence, tokens).ok());
  cache.RunCopies(0, 1);
  cache.FinishCopies();
  cache.Commit(sequence);
}

uint64_t BlockBytes(const Cache& cache) {
  const CacheStats stats = cache.stats();
  return stats.groups[GroupId{0}].block_bytes;
}

TEST(KvBorders, AStepThatIsGivenUpLeavesNoBlock) {
  for (int64_t length = 0; length <= 2 * kBlockTokens; ++length) {
    for (const int64_t tokens : {1, 31, 32, 33, 64, 80}) {
      Cache cache = MakeCache(TwoSmallGroups());
      Sequence sequence = cache.NewSequence();
      if (length > 0) Grow(cache, sequence, length);
      const uint64_t used = cache.bytes_used();
      ASSERT_TRUE(cache.Reserve(sequence, tokens).ok());
      cache.Rollback(sequence);
      ASSERT_EQ(cache.bytes_used(), used) << length << " and " << tokens;
      ASSERT_EQ(sequence.length, length);
    }
  }
}

// The budget ends in the first or in the second group: the blocks of both are given back.
TEST(KvBorders, ARefusedStepLeavesNoBlockInAnyGroup) {
  CacheOptions options = TwoSmallGroups();
  const uint64_t block = BlockBytes(MakeCache(options));
  for (uint64_t blocks = 2; blocks <= 5; ++blocks) {
    options.bytes_max = blocks * block;
    Cache cache = MakeCache(options);
    Sequence sequence = cache.NewSequence();
    Grow(cache, sequence, 20);
    ASSERT_EQ(cache.bytes_used(), 2 * block);
    const Status refused = cache.Reserve(sequence, 80);  // two more blocks in each group
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
    EXPECT_EQ(cache.bytes_used(), 2 * block) << blocks;
    ASSERT_TRUE(cache.Reserve(sequence, 12).ok());
    cache.Commit(sequence);
    EXPECT_EQ(cache.bytes_used(), 2 * block);
  }
}

// So many blocks as a step takes suffice to be granted it, and one byte less does not; the last
// holder of a shared block writes into it without a copy.
TEST(KvBorders, ExactlyTheBytesOfAStepAreAskedFor) {
  CacheOptions options = TwoSmallGroups();
  const uint64_t block = BlockBytes(MakeCache(options));
  for (const bool both : {false, true}) {
    for (const uint64_t missing : {0, 1}) {
      // 40 positions take two blocks in each group; either fork that goes on first copies the tail,
      // the other does not.
      options.bytes_max = (4 + 2) * block - missing;
      Cache cache = MakeCache(options);
      Sequence first = cache.NewSequence();
      Grow(cache, first, 40);
      Sequence second = cache.NewSequence();
      cache.Fork(first, second);
      const std::vector<Growth> growths = {{&first, 1}, {&second, 1}};
      const auto asked = std::span(growths).first(both ? 2 : 1);
      ASSERT_EQ(cache.CheckRoom(asked, options.chunk).ok(), missing == 0) << both;
      if (missing > 0) continue;
      Grow(cache, first, 1);
      if (both) Grow(cache, second, 1);
      EXPECT_EQ(cache.bytes_used(), options.bytes_max);
    }
  }
}

// Pruning up to the end drops the last block as well, and holes that touch are one.
TEST(KvBorders, PrunedBlocksAreDroppedAtTheEndAndWhereHolesTouch) {
  Cache cache = MakeCache(TwoSmallGroups());
  const uint64_t block = BlockBytes(cache);
  Sequence sequence = cache.NewSequence();
  Grow(cache, sequence, 75);
  ASSERT_EQ(cache.bytes_used(), 6 * block);
  ASSERT_TRUE(cache.Prune(sequence, 60, 75).ok());
  EXPECT_EQ(cache.bytes_used(), 4 * block);  // positions 64 to 74 were all of their block
  ASSERT_TRUE(cache.Prune(sequence, 40, 60).ok());
  EXPECT_EQ(cache.bytes_used(), 4 * block);
  ASSERT_EQ(sequence.pruned.size(), 1u);
  ASSERT_TRUE(cache.Prune(sequence, 30, 40).ok());
  EXPECT_EQ(cache.bytes_used(), 2 * block);
  ASSERT_EQ(sequence.pruned.size(), 1u);
  EXPECT_EQ(sequence.pruned[0].begin, 30);
  EXPECT_EQ(sequence.pruned[0].end, 75);
  // A hole ends where a rewind ends, and an empty one is none.
  ASSERT_TRUE(cache.Rewind(sequence, 50).ok());
  EXPECT_EQ(sequence.pruned.back().end, 50);
  ASSERT_TRUE(cache.Rewind(sequence, 30).ok());
  EXPECT_TRUE(sequence.pruned.empty());
}

TEST(KvBorders, ARewindToNothingTakesAllPositionsAnew) {
  Cache cache = MakeCache(TwoSmallGroups());
  Sequence sequence = cache.NewSequence();
  for (int i = 0; i < 7; ++i) Grow(cache, sequence, 80);
  ASSERT_GT(sequence.tables[GroupId{1}].first_position, 0);
  ASSERT_TRUE(cache.Rewind(sequence, 0).ok());
  EXPECT_EQ(cache.bytes_used(), 0u);
  Grow(cache, sequence, 40);
  EXPECT_EQ(cache.bytes_used(), 4 * BlockBytes(cache));
  EXPECT_EQ(cache.RewindLimit(sequence), 0);
  EXPECT_TRUE(cache.CheckTables(sequence).ok());
}

TEST(KvBorders, FreedBlocksArePoisonedWhenAskedFor) {
  CacheOptions options = TwoSmallGroups();
  for (const bool poison : {false, true}) {
    options.poison = poison;
    Cache cache = MakeCache(options);
    Sequence sequence = cache.NewSequence();
    Grow(cache, sequence, 20);
    const TableEntry entry = sequence.tables[GroupId{1}].entries[0];
    const std::vector<std::byte> written(4 * sizeof(float), std::byte{0x2a});
    for (int64_t row = 0; row < kBlockTokens; ++row) {
      WriteValueRow(cache, {1, 0}, entry, row, written.data(), nullptr);
    }
    cache.Free(sequence);
    const std::byte expected = poison ? std::byte{0xff} : std::byte{0x2a};
    for (int64_t row = 0; row < kBlockTokens; ++row) {
      std::vector<std::byte> found(written.size());
      ReadValueRow(cache, {1, 0}, entry, row, found.data(), nullptr);
      EXPECT_EQ(found, std::vector<std::byte>(written.size(), expected)) << row;
    }
  }
}

}  // namespace
}  // namespace kvant::kv
