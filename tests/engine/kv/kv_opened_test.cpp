// Rows and session files of a cache whose blocks the CPU cannot read where they lie: its store
// shows copies. All must be as with a host store, to the byte, and no copy may be left open.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/matmul.h"
#include "cpu/kernels/rope.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_rows.h"
#include "engine/kv/policies/state.h"
#include "engine/kv/session_file.h"
#include "engine/kv/stores/device_space.h"
#include "engine/kv/stores/device_store.h"
#include "tests/cuda/emulated_device.h"
#include "tests/temporary_folder.h"

namespace kvant::kv {
namespace {

int open_blocks = 0;  // of all distant stores

// Keeps blocks in a map, each at a place that nobody else knows.
class DistantStore final : public Store {
 public:
  explicit DistantStore(const GroupShape& shape) : shape_(shape), slab_(shape.slab()) {}

  void Copy(BlockId from, BlockId to, int member, int /*members*/) override {
    if (member == 0) ForEachHead([&](size_t l, size_t h) { At(l, h, to) = At(l, h, from); });
  }
  void Fill(BlockId block, std::byte value) override {
    ForEachHead([&](size_t l, size_t h) { At(l, h, block).assign(slab_.total(), value); });
  }
  OpenBlock Open(size_t layer, size_t head, BlockId block, Access access) override {
    auto copy = std::make_unique<Copied>(At(layer, head, block), access);
    std::byte* keys = copy->bytes.data();
    std::byte* values = keys + slab_.keys;
    std::byte* scales = values + slab_.values;
    return OpenBlock({keys, values, scales, scales + slab_.key_scales}, std::move(copy));
  }

 private:
  struct Copied final : OpenBlock::Mirror {
    Copied(std::vector<std::byte>& from, Access wanted) : home(from), access(wanted), bytes(from) {
      ++open_blocks;
    }
    Copied(const Copied&) = delete;
    Copied& operator=(const Copied&) = delete;
    ~Copied() override {
      --open_blocks;
      if (access == Access::kChange) home = bytes;
    }
    std::vector<std::byte>& home;
    Access access;
    std::vector<std::byte> bytes;
  };

  std::vector<std::byte>& At(size_t layer, size_t head, BlockId block) {
    std::vector<std::byte>& bytes = blocks_[{layer, head, static_cast<size_t>(block)}];
    if (bytes.empty()) bytes.resize(slab_.total());
    return bytes;
  }
  template <class Visit>
  void ForEachHead(const Visit& visit) {
    for (size_t layer = 0; layer < shape_.layers.size(); ++layer) {
      for (size_t head = 0; head < static_cast<size_t>(shape_.kv_heads); ++head) visit(layer, head);
    }
  }

  GroupShape shape_;
  SlabBytes slab_;
  std::map<std::tuple<size_t, size_t, size_t>, std::vector<std::byte>> blocks_;
};

Result<std::unique_ptr<Store>> MakeDistant(const GroupShape& shape, int64_t /*blocks*/,
                                           Commitment /*commitment*/) {
  return std::unique_ptr<Store>(std::make_unique<DistantStore>(shape));
}

// Groups of all formats, one with a window, one that rotates, and one of states.
CacheOptions AllKinds() {
  CacheOptions options;
  options.groups = {{0, 2, 16, 8, KvType::kF16, KvType::kF32, {0, 3}},
                    {9, 1, 16, 16, KvType::kQ8, KvType::kQ8, {1}},
                    {0, 1, 24, 12, KvType::kF32, KvType::kF16, {2}}};
  options.groups[1].rotate_keys = options.groups[1].rotate_values = true;
  GroupShape states{0, 1, 40, 0, KvType::kF32, KvType::kF32, {4, 5}};
  states.policy = State::kName;
  states.checkpoints = 2;
  options.groups.push_back(states);
  options.context = 200;
  options.chunk = 40;
  options.sequences = 3;
  return options;
}

Cache MakeCache(const StoreMaker& maker) {
  auto cache = Cache::Create(AllKinds(), maker);
  EXPECT_TRUE(cache.ok());
  return std::move(*cache);
}

// Runs one story of operations on a cache, whatever its store is, and remembers what can be read of
// the cache.
class Story {
 public:
  Story(const StoreMaker& maker, std::string path)
      : cache_(MakeCache(maker)), path_(std::move(path)) {}

  void Tell() {
    Sequence first = cache_.NewSequence();
    Grow(first, 40);
    Grow(first, 37);
    Sequence second = cache_.NewSequence();
    cache_.Fork(first, second);
    Grow(second, 5);  // copies the block that both hold
    Grow(first, 3);
    Move(second);
    Remember(first);
    Remember(second);
    SaveAndLoad(first, second);
    EXPECT_EQ(open_blocks, 0);
  }

  std::vector<float> numbers;  // all rows, in order
  std::string file;

 private:
  void Grow(Sequence& sequence, int64_t tokens) {
    ASSERT_TRUE(cache_.Reserve(sequence, tokens).ok());
    cache_.RunCopies(0, 1);
    cache_.FinishCopies();
    for (const GroupId group : cache_.group_ids()) {
      const GroupShape& shape = cache_.shape(group);
      if (shape.holds_states()) {
        WriteStates(shape, State::WriteBlock(sequence.tables[group]));
        continue;
      }
      for (int64_t i = 0; i < tokens; ++i) WriteRow(sequence, group, sequence.length + i);
    }
    cache_.Commit(sequence);
  }

  void WriteStates(const GroupShape& shape, BlockId block) {
    for (const int layer : shape.layers) {
      const OpenBlock open = cache_.Open(layer, 0, block, Access::kChange);
      const std::vector<float> state = RandomRow(shape.k_dim);
      std::memcpy(open.place().keys, state.data(), state.size() * sizeof(float));
    }
  }

  void WriteRow(const Sequence& sequence, GroupId group, int64_t position) {
    const GroupShape& shape = cache_.shape(group);
    const TableEntry* entry = EntryAt(sequence.tables[group], position);
    ASSERT_NE(entry, nullptr);
    for (const int layer : shape.layers) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        const Row row{{layer, head}, *entry, position};
        StoreKey(cache_, kernels_, row, RandomRow(shape.k_dim).data());
        StoreValue(cache_, kernels_, row, RandomRow(shape.v_dim).data());
      }
    }
  }

  // Keys turn back by 11 positions, values move as they are.
  void Move(const Sequence& sequence) {
    const std::vector<float> frequencies = {1.0f, 0.25f};
    for (const int layer : {0, 2}) {
      const BlockTable& table = sequence.tables[cache_.group_of_layer(layer)];
      MoveRows(cache_, kernels_, layer, {table, table, 33, 70, 11}, frequencies,
               cpu::RopeStyle::kHalves);
    }
  }

  void Remember(const Sequence& sequence) {
    for (const GroupId group : cache_.group_ids()) {
      const GroupShape& shape = cache_.shape(group);
      if (shape.holds_states()) continue;  // the file has them
      for (int64_t position = 0; position < sequence.length; ++position) {
        const TableEntry* entry = EntryAt(sequence.tables[group], position);
        if (entry == nullptr || position < sequence.tables[group].first_position) continue;
        for (const int layer : shape.layers) {
          for (int head = 0; head < shape.kv_heads; ++head) {
            const Row row{{layer, head}, *entry, position};
            std::vector<float> key(static_cast<size_t>(shape.k_dim));
            std::vector<float> value(static_cast<size_t>(shape.v_dim));
            LoadKey(cache_, kernels_, row, key.data());
            LoadValue(cache_, kernels_, row, value.data());
            numbers.insert(numbers.end(), key.begin(), key.end());
            numbers.insert(numbers.end(), value.begin(), value.end());
          }
        }
      }
    }
  }

  void Save(std::span<const Sequence* const> sequences) {
    std::vector<std::vector<TokenId>> tokens;
    std::vector<SavedSequence> saved;
    for (const Sequence* sequence : sequences) {
      tokens.emplace_back(static_cast<size_t>(sequence->length), 1);
    }
    for (size_t i = 0; i < sequences.size(); ++i) {
      saved.push_back({sequences[i], tokens[i], {}, true, 0});
    }
    ASSERT_TRUE(WriteSessionFile(path_, {7, 5}, cache_, {{}, false, saved}).ok());
    std::ifstream in(path_, std::ios::binary);
    file.assign(std::istreambuf_iterator<char>(in), {});
  }

  // Loaded sequences are saved again as equal bytes.
  void SaveAndLoad(Sequence& first, Sequence& second) {
    Save(std::vector<const Sequence*>{&first, &second});
    const std::string before = file;
    cache_.Free(first);
    cache_.Free(second);
    const auto no_source = [](SourceKind, std::span<const std::byte>) -> Result<int64_t> {
      return Error(ErrorCode::kInvalid, "no source");
    };
    auto loaded = ReadSessionFile(path_, {7, 5}, no_source, cache_);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    ASSERT_EQ(loaded->sequences.size(), 2u);
    Save(std::vector<const Sequence*>{&loaded->sequences[0].kv, &loaded->sequences[1].kv});
    EXPECT_EQ(file, before);
  }

  std::vector<float> RandomRow(int dim) {
    std::vector<float> row(static_cast<size_t>(dim));
    for (float& x : row) x = static_cast<float>(random_() % 2001) / 500.0f - 2.0f;
    return row;
  }

  const cpu::KernelTable& kernels_ = *cpu::ChooseKernels("scalar").value();
  Cache cache_;
  std::string path_;
  std::mt19937 random_{11};
};

TEST(KvOpened, OtherStoresHoldWhatAHostStoreHolds) {
  test::TemporaryFolder folder;
  Story host(ListedStores(), folder / "host");
  host.Tell();
  ASSERT_GT(host.numbers.size(), 10000u);
  ASSERT_GT(host.file.size(), 10000u);
  Story distant(MakeDistant, folder / "distant");
  distant.Tell();
  EXPECT_EQ(host.numbers, distant.numbers);
  EXPECT_EQ(host.file, distant.file);
  for (const cuda::MemoryKind kind : {cuda::MemoryKind::kDevice, cuda::MemoryKind::kHost}) {
    const auto opened = test::OpenEmulatedDevice();
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const auto space = std::make_shared<DeviceSpace>(*opened, kind);
    const auto make = [&space](const GroupShape& shape, int64_t blocks, Commitment /*commitment*/) {
      return DeviceStore::Create(space, shape, blocks);
    };
    Story device(make, folder / "device");
    device.Tell();
    EXPECT_TRUE(space->status().ok());
    EXPECT_EQ(host.numbers, device.numbers);
    EXPECT_EQ(host.file, device.file);
  }
}

// Blocks that are only read stay as they are, whatever is done to what is shown.
TEST(KvOpened, WhatIsOpenedToBeReadIsNotPutBack) {
  GroupShape shape = AllKinds().groups[0];
  DistantStore store(shape);
  const auto first_byte = [&] { return *store.Open(1, 1, BlockId{3}, Access::kRead).place().keys; };
  *store.Open(1, 1, BlockId{3}, Access::kRead).place().keys = std::byte{5};
  EXPECT_EQ(first_byte(), std::byte{0});
  *store.Open(1, 1, BlockId{3}, Access::kChange).place().keys = std::byte{5};
  EXPECT_EQ(first_byte(), std::byte{5});
}

}  // namespace
}  // namespace kvant::kv
