// Blocks, tables, transactions, windows and addresses of the KV cache, against simple models of
// each.
#include "engine/kv/kv_cache.h"
#include "base/result.h"
#include "cpu/kernels/attention.h"
#include "cpu/kv_format_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>

#include "engine/kv/accounting/block_pool.h"
#include "engine/kv/kv_rows.h"
#include "engine/kv/pass_view.h"
#include "tests/engine/kv/make_cache.h"

namespace kvant::kv {
namespace {

TEST(BlockPool, MatchesASetOfFreeNumbersOverRandomOperations) {
  constexpr int kBlocks = 200;
  BlockPool pool(kBlocks);
  std::set<BlockId> free_blocks;
  for (const BlockId block : pool.ids()) free_blocks.insert(block);
  std::map<BlockId, int> references;
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    const uint32_t action = random() % 5;
    if (action <= 1 || references.empty()) {
      const BlockId previous = references.empty() ? kNoBlock : references.rbegin()->first;
      const BlockId block = pool.Take(action == 0 ? previous : kNoBlock);
      if (free_blocks.empty()) {
        ASSERT_EQ(block, kNoBlock);
        continue;
      }
      const bool follows =
          action == 0 && previous != kNoBlock && free_blocks.contains(Successor(previous));
      ASSERT_EQ(block, follows ? Successor(previous) : *free_blocks.begin());
      free_blocks.erase(block);
      references[block] = 1;
    } else {
      auto entry = references.begin();
      std::advance(entry, random() % references.size());
      if (action == 2) {
        pool.AddReference(entry->first);
        ++entry->second;
      } else {
        pool.Release(entry->first);
        if (--entry->second == 0) {
          free_blocks.insert(entry->first);
          references.erase(entry);
        }
      }
    }
    ASSERT_EQ(pool.used(), static_cast<int64_t>(references.size()));
    ASSERT_EQ(pool.free(), static_cast<int64_t>(free_blocks.size()));
  }
}

CacheOptions TwoGroups(int64_t window, int64_t context, int64_t chunk) {
  const auto f16 = KvType::kF16;
  const auto f32 = KvType::kF32;
  CacheOptions options;
  options.groups = {{0, 2, 48, 48, f16, f16, {0, 2}}, {window, 1, 24, 40, f32, f16, {1, 3, 4}}};
  options.context = context;
  options.chunk = chunk;
  return options;
}

TEST(KvCache, FormulaOfLlama2IsExact) {
  const auto bytes = [](KvType element) {
    GroupShape shape{0, 32, 128, 128, element, element, {}};
    for (int layer = 0; layer < 32; ++layer) shape.layers.push_back(layer);
    return Cache::BytesNeeded({.groups = {shape}, .context = 2048, .chunk = 512});
  };
  EXPECT_EQ(bytes(KvType::kF16), 1073741824u);
  EXPECT_EQ(bytes(KvType::kF32), 2147483648u);
  EXPECT_EQ(bytes(KvType::kQ8), 553648128u);
}

// Every row that the step writes lies where the runs say, and no two at the same place.
void CheckAddresses(const PassView& view, const CacheOptions& options, const Cache& cache,
                    const Sequence& sequence) {
  std::set<const std::byte*> seen;
  std::vector<cpu::KvRun> storage(static_cast<size_t>(PassView::RunsMax(cache.context(), 1)));
  for (const GroupShape& shape : options.groups) {
    for (const int layer : shape.layers) {
      const BlockTable& table = sequence.tables[cache.group_of_layer(layer)];
      for (int head = 0; head < shape.kv_heads; ++head) {
        int64_t expected = table.first_position;
        for (const cpu::KvRun& run : view.Runs(layer, head, view.work(layer)[0], storage)) {
          ASSERT_EQ(run.first_position, expected);
          ASSERT_EQ(run.rows, ~uint64_t{0});
          for (int64_t i = 0; i < run.count; ++i) {
            const int64_t position = run.first_position + i;
            if (position < sequence.length) continue;
            const PassView::Place place = view.PlaceOf(layer, head, 0, position);
            ASSERT_EQ(place.key_tile,
                      run.keys + static_cast<size_t>(i / 16) *
                                     cpu::KvKeyTileBytes(shape.k_type, shape.k_dim));
            ASSERT_EQ(place.value_tile,
                      run.values + static_cast<size_t>(i / 4) *
                                       cpu::KvValueTileBytes(shape.v_type, shape.v_dim));
            ASSERT_EQ(place.key_column, position % 16);
            ASSERT_EQ(place.value_column, position % 4);
            ASSERT_TRUE(seen.insert(place.value_tile + place.value_column).second);
          }
          expected += run.count;
        }
        ASSERT_EQ(expected, sequence.length + sequence.reserved);
      }
    }
  }
}

// The view of one sequence with its reserved positions.
void SetView(PassView& view, const Sequence& sequence) {
  const PartRows part{&sequence, 0, sequence.reserved};
  view.Set({&part, 1});
}

class KvCacheWindow : public testing::TestWithParam<int64_t> {};

TEST_P(KvCacheWindow, HoldsWhatIsVisibleAndNoMoreThanTheBound) {
  const int64_t window = GetParam();
  constexpr int64_t kContext = 4096;
  constexpr int64_t kChunk = 96;
  const CacheOptions options = TwoGroups(window, kContext, kChunk);
  Cache cache = MakeCache(options);
  PassView view(cache, 1, kChunk);
  Sequence sequence = cache.NewSequence();
  std::mt19937 random(11);
  for (int step = 0; step < 400; ++step) {
    const int64_t tokens = 1 + static_cast<int64_t>(random() % kChunk);
    if (sequence.length + tokens > kContext) break;
    ASSERT_TRUE(cache.Reserve(sequence, tokens).ok());
    SetView(view, sequence);
    const BlockTable& table = sequence.tables[GroupId{1}];
    const int64_t first_needed = std::max<int64_t>(0, sequence.length - window + 1);
    ASSERT_LE(table.first_position, first_needed);
    if (step % 5 == 0) CheckAddresses(view, options, cache, sequence);
    if (random() % 4 == 0) {
      const Sequence reserved = sequence;
      cache.Rollback(sequence);
      ASSERT_EQ(sequence.length, reserved.length);
      continue;
    }
    cache.Commit(sequence);
    const int64_t rows = static_cast<int64_t>(table.entries.size()) * kBlockTokens;
    ASSERT_LE(rows, window + kChunk - 1 + kRewindSlack + kBlockTokens - 1 + kBlockTokens);
    ASSERT_LE(sequence.length - table.first_position, window + kRewindSlack + kBlockTokens - 1);
    if (random() % 3 == 0 && sequence.length > 0) {
      const int64_t back =
          std::min<int64_t>(sequence.length, static_cast<int64_t>(random() % kRewindSlack));
      const int64_t length = sequence.length - back;
      if (length >= cache.RewindLimit(sequence)) {
        ASSERT_TRUE(cache.Rewind(sequence, length).ok());
        ASSERT_EQ(sequence.length, length);
      }
    }
  }
  cache.Free(sequence);
  EXPECT_EQ(cache.bytes_used(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Windows, KvCacheWindow, testing::Values(1, 7, 32, 33, 100, 1000));

// The plan of a sequence is the most that it holds, over all places in a block where a step may
// begin: with the plan as its budget every step fits, and with a byte less some step does not.
TEST(KvCache, ExactlyThePlannedBlocksAreNeeded) {
  constexpr int64_t kContext = 2000;
  const auto f16 = KvType::kF16;
  for (const int64_t window : {1, 2, 7, 31, 32, 33, 64, 65, 100}) {
    for (int64_t chunk = 1; chunk <= 2 * kBlockTokens + 1; ++chunk) {
      CacheOptions options;
      options.groups = {{window, 1, 4, 4, f16, f16, {0}}};
      options.context = kContext;
      options.chunk = chunk;
      const uint64_t planned = Cache::BytesNeeded(options);
      for (const uint64_t budget : {planned, planned - 1}) {
        options.bytes_max = budget;
        Cache cache = MakeCache(options);
        Sequence sequence = cache.NewSequence();
        bool refused = false;
        const int64_t end = window + kRewindSlack + 2 * kBlockTokens;
        while (!refused && sequence.length < end) {
          refused = !cache.Reserve(sequence, chunk).ok();
          if (!refused) cache.Rollback(sequence);
          // A single token goes on from the next place; with chunks of one it is what was refused.
          if (refused && chunk == 1) break;
          ASSERT_TRUE(cache.Reserve(sequence, 1).ok());
          cache.Commit(sequence);
        }
        ASSERT_EQ(refused, budget < planned) << "window " << window << " chunk " << chunk;
      }
    }
  }
}

TEST(KvCache, RewindWithinTheSlackAlwaysWorksAndBeyondItIsRefusedUnchanged) {
  Cache cache = MakeCache(TwoGroups(64, 8192, 32));
  Sequence sequence = cache.NewSequence();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(cache.Reserve(sequence, 32).ok());
    cache.Commit(sequence);
  }
  ASSERT_EQ(sequence.length, 3200);
  ASSERT_LE(cache.RewindLimit(sequence), 3200 - kRewindSlack);
  const size_t before = sequence.tables[GroupId{1}].entries.size();
  const Status refused = cache.Rewind(sequence, 100);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNotSupported);
  EXPECT_EQ(sequence.length, 3200);
  EXPECT_EQ(sequence.tables[GroupId{1}].entries.size(), before);
  EXPECT_TRUE(cache.Rewind(sequence, 3200 - kRewindSlack).ok());
  EXPECT_EQ(cache.Rewind(sequence, 5000).error().code, ErrorCode::kInvalid);
  EXPECT_TRUE(cache.Rewind(sequence, 0).ok());
  EXPECT_EQ(cache.bytes_used(), 0u);
}

TEST(KvCache, FullContextIsRefusedAndNothingChanges) {
  Cache cache = MakeCache(TwoGroups(16, 100, 64));
  Sequence sequence = cache.NewSequence();
  ASSERT_TRUE(cache.Reserve(sequence, 64).ok());
  cache.Commit(sequence);
  const uint64_t used = cache.bytes_used();
  const Status status = cache.Reserve(sequence, 37);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kContextFull);
  EXPECT_EQ(cache.bytes_used(), used);
  EXPECT_TRUE(cache.Reserve(sequence, 36).ok());
}

TEST(KvCache, OneSequenceIsOneRunPerLane) {
  const CacheOptions options = TwoGroups(64, 4096, 64);
  Cache cache = MakeCache(options);
  PassView view(cache, 1, 64);
  Sequence sequence = cache.NewSequence();
  std::vector<cpu::KvRun> storage(static_cast<size_t>(PassView::RunsMax(4096, 1)));
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(cache.Reserve(sequence, 64).ok());
    SetView(view, sequence);
    EXPECT_EQ(view.Runs(0, 1, view.work(0)[0], storage).size(), 1u);
    EXPECT_LE(view.Runs(1, 0, view.work(1)[0], storage).size(), 2u);  // a ring wraps once
    cache.Commit(sequence);
  }
}

TEST(KvCache, ABudgetIsRefusedWithBytesAndNothingChanges) {
  CacheOptions options = TwoGroups(16, 1024, 64);
  options.sequences = 4;
  options.bytes_max = Cache::BytesNeeded(options) / 8;
  Cache cache = MakeCache(options);
  Sequence sequence = cache.NewSequence();
  Status status;
  while (status.ok()) {
    status = cache.Reserve(sequence, 64);
    if (status.ok()) cache.Commit(sequence);
    ASSERT_LE(cache.bytes_used(), options.bytes_max);
  }
  EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(status.error().message.find("bytes are needed"), std::string::npos);
  const int64_t length = sequence.length;
  EXPECT_GT(length, 0);
  const Sequence* all[] = {&sequence};
  EXPECT_TRUE(cache.Check(all, [](GroupId, BlockId) { return 0; }).ok());
  ASSERT_TRUE(cache.Rewind(sequence, length / 2).ok());
  EXPECT_TRUE(cache.Reserve(sequence, 32).ok());
}

// Sequences grow in pieces of a chunk, one after the other, as the passes of a step do.
Status GrowInPieces(Cache& cache, std::vector<Sequence>& sequences, std::span<const Growth> growths,
                    int64_t chunk) {
  for (const Growth& growth : growths) {
    Sequence& sequence = sequences[static_cast<size_t>(growth.sequence - sequences.data())];
    for (int64_t left = growth.tokens; left > 0;) {
      const int64_t piece = std::min(chunk, left);
      KVANT_TRY(cache.Reserve(sequence, piece));
      cache.RunCopies(0, 1);
      cache.FinishCopies();
      cache.Commit(sequence);
      left -= piece;
    }
  }
  return {};
}

// Pools have room for every sequence at its full length, however the sequences came about.
TEST(KvRoom, IsFoundBehindWindowsForAllSequences) {
  CacheOptions options = TwoGroups(7, 1400, 40);
  options.sequences = 3;
  for (const bool forked : {false, true}) {
    Cache cache = MakeCache(options);
    std::vector<Sequence> sequences(3);
    for (Sequence& sequence : sequences) sequence = cache.NewSequence();
    std::vector<Growth> growths = {{&sequences[0], 700}};
    if (!forked) growths.insert(growths.end(), {{&sequences[1], 700}, {&sequences[2], 700}});
    ASSERT_TRUE(cache.CheckRoom(growths, 40).ok());
    ASSERT_TRUE(GrowInPieces(cache, sequences, growths, 40).ok());
    if (forked) {
      cache.Fork(sequences[0], sequences[1]);
      cache.Fork(sequences[0], sequences[2]);
    }
    growths = {{&sequences[0], 600}, {&sequences[1], 600}, {&sequences[2], 600}};
    EXPECT_TRUE(cache.CheckRoom(growths, 40).ok()) << forked;
    EXPECT_TRUE(GrowInPieces(cache, sequences, growths, 40).ok()) << forked;
  }
}

// The room that CheckRoom grants is there, also under budgets, with forks, and beside a holder that
// keeps what a sequence drops. A step that it says would fit is granted.
TEST(KvRoom, WhatIsGrantedIsThere) {
  std::mt19937 random(5);
  int granted = 0;
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    constexpr int64_t kChunk = 24;
    CacheOptions options = TwoGroups(1 + static_cast<int64_t>(random() % 120), 600, kChunk);
    options.sequences = 4;
    if (round % 3 > 0) options.bytes_max = Cache::BytesNeeded(options) / (1 + random() % 4);
    Cache cache = MakeCache(options);
    std::vector<Sequence> sequences(4);
    for (Sequence& sequence : sequences) sequence = cache.NewSequence();
    for (int step = 0; step < 12; ++step) {
      const auto from = static_cast<size_t>(random() % 4);
      const auto to = static_cast<size_t>(random() % 4);
      if (from != to && random() % 2 == 0) {
        cache.Free(sequences[to]);
        cache.Fork(sequences[from], sequences[to]);
      }
      std::vector<Growth> growths;
      for (const Sequence& sequence : sequences) {
        if (random() % 4 == 0) continue;
        const int64_t room = 600 - sequence.length;
        const int64_t wanted = random() % 2 == 0 ? 1 : 1 + static_cast<int64_t>(random() % 150);
        if (room > 0) growths.push_back({&sequence, std::min(room, wanted)});
      }
      const Status status = cache.CheckRoom(growths, kChunk);
      ++(status.ok() ? granted : refused);
      if (!status.ok()) continue;
      const Status grown = GrowInPieces(cache, sequences, growths, kChunk);
      ASSERT_TRUE(grown.ok()) << round << " " << grown.error().message;
    }
  }
  EXPECT_GT(granted, 500);
  EXPECT_GT(refused, 50);
}

// A block whose copy is marked keeps its rows until the copy is made, although its last holder
// goes.
TEST(KvCache, AMarkedCopyIsMadeBeforeItsSourceIsGivenUp) {
  CacheOptions options = TwoGroups(16, 512, 64);
  options.sequences = 2;
  options.poison = true;
  Cache cache = MakeCache(options);
  Sequence first = cache.NewSequence();
  ASSERT_TRUE(cache.Reserve(first, 40).ok());
  cache.Commit(first);
  Sequence second = cache.NewSequence();
  cache.Fork(first, second);
  const auto tail = [&](const Sequence& sequence) {
    return sequence.tables[GroupId{0}].entries.back();
  };
  const std::vector<std::byte> written(48 * 2, std::byte{0x2a});
  for (int64_t row = 0; row < kBlockTokens; ++row) {
    WriteKeyRow(cache, {0, 1}, tail(first), row, written.data(), nullptr);
  }
  ASSERT_TRUE(cache.Reserve(first, 1).ok());
  ASSERT_FALSE(cache.copies().empty());
  cache.Free(second);
  cache.RunCopies(0, 1);
  cache.FinishCopies();
  for (int64_t row = 0; row < kBlockTokens; ++row) {
    std::vector<std::byte> found(written.size());
    ReadKeyRow(cache, {0, 1}, tail(first), row, found.data(), nullptr);
    EXPECT_EQ(found, written) << row;
  }
}

}  // namespace
}  // namespace kvant::kv
