// Rows of the block cache that move, and what a pass of a replay sees: to the position.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "cpu/dispatch.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/rope.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"
#include "engine/kv/kv_rows.h"
#include "engine/kv/pass_view.h"
#include "tests/engine/kv/make_cache.h"

namespace kvant::kv {
namespace {

// A full group and one with a window, one layer each.
CacheOptions TwoGroups(int64_t window, KvType type = KvType::kF32) {
  CacheOptions options;
  options.groups = {{0, 2, 16, 16, type, type, {0}}, {window, 2, 16, 16, type, type, {1}}};
  options.context = 900;
  options.chunk = 80;
  options.sequences = 2;
  return options;
}

void GrowTo(Cache& cache, Sequence& sequence, int64_t length) {
  while (sequence.length < length) {
    ASSERT_TRUE(cache.Reserve(sequence, std::min<int64_t>(80, length - sequence.length)).ok());
    cache.RunCopies(0, 1);
    cache.FinishCopies();
    cache.Commit(sequence);
  }
}

// A move behind a window takes new blocks. Where these do not fit nothing has changed.
TEST(KvEdges, AMoveWithoutRoomLeavesNoBlock) {
  CacheOptions options = TwoGroups(7);
  options.bytes_max = uint64_t{1} << 40;
  uint64_t bytes = 0;
  for (const bool tight : {false, true}) {
    if (tight) options.bytes_max = bytes;
    Cache cache = MakeCache(options);
    Sequence sequence = cache.NewSequence();
    GrowTo(cache, sequence, 700);
    ASSERT_GT(sequence.tables[GroupId{1}].first_position, 100);
    const uint64_t used = cache.bytes_used();
    auto tables = cache.PrepareMove(sequence, 10, 500);
    if (!tight) {
      ASSERT_TRUE(tables.ok());
      EXPECT_GE(cache.bytes_used(), used + 3 * cache.stats().groups[GroupId{1}].block_bytes);
      bytes = cache.bytes_used() - 1;  // all but the last of the new blocks fits
      continue;
    }
    ASSERT_FALSE(tables.ok());
    EXPECT_EQ(tables.error().code, ErrorCode::kOutOfMemory);
    EXPECT_EQ(cache.bytes_used(), used);
    const Sequence* const all[] = {&sequence};
    EXPECT_TRUE(cache.Check(all, [](GroupId, BlockId) { return 0; }).ok());
  }
}

// After a move a window's table holds what it held of the tokens, at their new positions, wherever
// its first position lies beside the place to which they move.
TEST(KvEdges, AMoveKeepsEveryPositionThatTheWindowHeld) {
  for (const int64_t after : {-2, -1, 0, 1, 2}) {
    Cache cache = MakeCache(TwoGroups(7));
    Sequence sequence = cache.NewSequence();
    GrowTo(cache, sequence, 700);
    const int64_t first = sequence.tables[GroupId{1}].first_position;
    const int64_t begin = first + after;
    const int64_t end = begin + 40;
    std::set<int64_t> expected;  // of what lies before the hole, and of what moves
    for (int64_t p = first; p < begin; ++p) expected.insert(p);
    for (int64_t p = std::max(first, end); p < 700; ++p) expected.insert(p - 40);
    auto tables = cache.PrepareMove(sequence, begin, end);
    ASSERT_TRUE(tables.ok());
    cache.RunCopies(0, 1);
    cache.FinishCopies();
    cache.FinishMove(sequence, std::move(*tables), end - begin);
    const BlockTable& table = sequence.tables[GroupId{1}];
    EXPECT_EQ(table.first_position, *expected.begin()) << after;
    for (const int64_t position : expected) {
      ASSERT_NE(EntryAt(table, position), nullptr) << position << " of a move to " << begin;
    }
    EXPECT_EQ(sequence.length, 660);
  }
}

// Keys of a layer without a rope know nothing of their position, so they move as they are, in every
// format, also where old and new places overlap.
TEST(KvEdges, KeysWithoutARopeMoveToTheBit) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    CacheOptions options = TwoGroups(7, type);
    for (GroupShape& group : options.groups) {
      group.rotate_keys = group.rotate_values = type == KvType::kQ8;
    }
    Cache cache = MakeCache(options);
    const cpu::KernelTable& kernels = **cpu::ChooseKernels("scalar");
    Sequence sequence = cache.NewSequence();
    GrowTo(cache, sequence, 100);
    const auto row = [&](int64_t position, bool is_key) {
      std::vector<std::byte> bytes(16 * sizeof(float) + sizeof(float));
      float scale = 0;
      const TableEntry& entry = *EntryAt(sequence.tables[GroupId{0}], position);
      (is_key ? ReadKeyRow : ReadValueRow)(cache, {0, 1}, entry, position, bytes.data(), &scale);
      std::memcpy(bytes.data() + 16 * sizeof(float), &scale, sizeof(float));
      return bytes;
    };
    for (int64_t p = 0; p < 100; ++p) {
      for (int head = 0; head < 2; ++head) {
        std::vector<float> vector(16);
        for (size_t d = 0; d < 16; ++d) {
          vector[d] = std::sin(static_cast<float>(p * 16 + head) + 3.7f * static_cast<float>(d));
        }
        std::vector<float> value = vector;
        const TableEntry& entry = *EntryAt(sequence.tables[GroupId{0}], p);
        StoreKey(cache, kernels, {{0, head}, entry, p}, vector.data());
        StoreValue(cache, kernels, {{0, head}, entry, p}, value.data());
      }
    }
    std::vector<std::vector<std::byte>> before;
    for (int64_t p = 0; p < 200; ++p) before.push_back(row(p / 2, p % 2 == 0));
    auto tables = cache.PrepareMove(sequence, 5, 12);
    ASSERT_TRUE(tables.ok());
    MoveRows(cache, kernels, 0, {sequence.tables[GroupId{0}], (*tables)[GroupId{0}], 5, 93, 7}, {},
             cpu::RopeStyle::kInterleaved);
    cache.FinishMove(sequence, std::move(*tables), 7);
    ASSERT_EQ(sequence.length, 93);
    for (int64_t p = 0; p < 93; ++p) {
      const auto from = static_cast<size_t>(2 * (p < 5 ? p : p + 7));
      ASSERT_EQ(row(p, true), before[from]) << "key " << p;
      ASSERT_EQ(row(p, false), before[from + 1]) << "value " << p;
    }
  }
}

// Full groups are ahead of a replay: a pass reads their positions up to its own, and no further.
TEST(KvEdges, APassOfAReplaySeesNothingThatComesAfterIt) {
  Cache cache = MakeCache(TwoGroups(7));
  PassView view(cache, 1, 80);
  Sequence sequence = cache.NewSequence();
  GrowTo(cache, sequence, 700);
  Sequence copy = cache.NewSequence();
  cache.Fork(sequence, copy);
  cache.BeginReplay(copy, 96);
  for (const int64_t tokens : {20, 12, 32}) {
    ASSERT_TRUE(cache.Reserve(copy, tokens).ok());
    const PartRows part{&copy, 0, tokens};
    view.Set({&part, 1});
    EXPECT_FALSE(view.Stores(0, 0));
    EXPECT_TRUE(view.Stores(1, 0));
    std::vector<cpu::KvRun> storage(static_cast<size_t>(PassView::RunsMax(cache.context(), 1)));
    int64_t end = 0;
    for (const cpu::KvRun& run : view.Runs(0, 0, view.work(0)[0], storage)) {
      EXPECT_EQ(run.first_position, end);
      end += run.count;
    }
    EXPECT_EQ(end, copy.length + tokens);
    cache.Commit(copy);
  }
}

}  // namespace
}  // namespace kvant::kv
