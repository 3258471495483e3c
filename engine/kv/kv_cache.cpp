// Pools, blocks, transactions and addresses of the KV cache.
#include "engine/kv/kv_cache.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"

namespace kvant::kv {
namespace {

constexpr size_t kLaneAlignment = 64;

size_t ScaleSlab(cpu::KvElement element) {
  return element == cpu::KvElement::kQ8 ? kBlockTokens * sizeof(float) : 0;
}

}  // namespace

uint64_t GroupShape::bytes_per_token() const {
  const uint64_t head = SlabBytes(*this).total() / kBlockTokens;
  return head * static_cast<uint64_t>(kv_heads) * layers.size();
}

int64_t GroupShape::FirstVisible(int64_t position) const {
  return window == 0 ? 0 : std::max<int64_t>(0, position - window + 1);
}

SlabBytes::SlabBytes(const GroupShape& shape)
    : keys(cpu::KvKeyTileBytes(shape.k_type, shape.k_dim) * kBlockTokens / cpu::kKeyTileTokens),
      values(cpu::KvValueGroupBytes(shape.v_type, shape.v_dim) * kBlockTokens /
             cpu::kValueGroupTokens),
      key_scales(ScaleSlab(shape.k_type)),
      value_scales(ScaleSlab(shape.v_type)) {}

PositionRange FirstPositions(const GroupShape& shape, int64_t length, bool plain) {
  if (shape.window == 0) return {0, 1};
  return {0, (plain ? shape.FirstVisible(length) : length) + 1};
}

int64_t Sequence::pruned_before(int64_t position) const {
  int64_t count = 0;
  for (const PositionRange& range : pruned) {
    count += std::max<int64_t>(0, std::min(range.end, position) - range.begin);
  }
  return count;
}

// ---- Pools --------------------------------------------------------------------------------------

int64_t Cache::BlocksNeeded(const GroupShape& shape, int64_t context, int64_t chunk) {
  const int64_t all = BlocksFor(context);
  if (shape.window == 0) return all;
  // Before a step the table reaches back over window and slack; the chunk comes on top before
  // anything is dropped. The first of these positions may be the last one of its block.
  const int64_t ring = BlocksFor(shape.window + kRewindSlack + chunk - 1 + kBlockTokens - 1);
  return std::min(all, ring);
}

int64_t Cache::BlocksForReplay(const GroupShape& shape, int64_t context) {
  return shape.window == 0 ? 0 : BlocksNeeded(shape, context, kReplayTokens);
}

uint64_t Cache::BytesNeeded(const CacheOptions& options) {
  uint64_t bytes = 0;
  for (const GroupShape& shape : options.groups) {
    const int64_t blocks = BlocksNeeded(shape, options.context, options.chunk) * options.sequences +
                           (options.commit ? BlocksForReplay(shape, options.context) : 0);
    bytes += shape.bytes_per_token() * static_cast<uint64_t>(blocks * kBlockTokens);
  }
  return options.bytes_max == 0 ? bytes : std::min(bytes, options.bytes_max);
}

Result<Cache> Cache::Create(const CacheOptions& options) {
  Cache cache;
  cache.context_ = options.context;
  cache.sequences_ = options.sequences;
  cache.poison_ = options.poison;
  cache.bytes_max_ = options.bytes_max;
  for (const GroupShape& shape : options.groups) {
    const int64_t blocks = BlocksNeeded(shape, options.context, options.chunk) * options.sequences +
                           BlocksForReplay(shape, options.context);
    const size_t heads = static_cast<size_t>(shape.kv_heads);
    const auto lane = [blocks](size_t slab) {
      return RoundUp(slab * static_cast<size_t>(blocks), kLaneAlignment);
    };
    const SlabBytes slab(shape);
    Group group{.shape = shape,
                .slab = slab,
                .pool = BlockPool(blocks),
                .memory = {},
                .block_bytes = slab.total() * heads * shape.layers.size(),
                .key_lane = lane(slab.keys),
                .value_lane = lane(slab.values),
                .key_scale_lane = lane(slab.key_scales),
                .value_scale_lane = lane(slab.value_scales),
                .layer_bytes = 0};
    group.layer_bytes =
        heads * (group.key_lane + group.value_lane + group.key_scale_lane + group.value_scale_lane);
    KVANT_ASSIGN(group.memory,
                 AlignedBuffer::Allocate(shape.layers.size() * group.layer_bytes, "KV cache"));
    if (options.commit) {
      group.memory.Commit();
      group.committed = blocks;
    }
    for (size_t index = 0; index < shape.layers.size(); ++index) {
      const size_t layer = static_cast<size_t>(shape.layers[index]);
      if (cache.layer_places_.size() <= layer) cache.layer_places_.resize(layer + 1);
      cache.layer_places_[layer] = {static_cast<int>(cache.groups_.size()),
                                    static_cast<int>(index)};
    }
    cache.groups_.push_back(std::move(group));
  }
  cache.copies_.reserve(static_cast<size_t>(options.sequences) * cache.groups_.size());
  cache.tails_.reserve(static_cast<size_t>(options.sequences));
  int64_t blocks_most = 0;
  for (const Group& group : cache.groups_) {
    blocks_most = std::max<int64_t>(blocks_most, group.pool.capacity());
  }
  cache.mentions_.reserve(static_cast<size_t>(blocks_most));
  return cache;
}

Sequence Cache::NewSequence() const {
  Sequence sequence;
  sequence.tables.resize(groups_.size());
  for (BlockTable& table : sequence.tables) {
    table.entries.reserve(static_cast<size_t>(BlocksFor(context_)));
  }
  return sequence;
}

// A group's memory: for each of its layers the key lanes of all heads, then their value lanes, then
// the lanes of scales.
Lanes Cache::LanesIn(const Group& group, size_t layer_index, size_t head) const {
  const size_t heads = static_cast<size_t>(group.shape.kv_heads);
  std::byte* layer = group.memory.data() + layer_index * group.layer_bytes;
  std::byte* values = layer + heads * group.key_lane;
  std::byte* key_scales = values + heads * group.value_lane;
  std::byte* value_scales = key_scales + heads * group.key_scale_lane;
  return {layer + head * group.key_lane, values + head * group.value_lane,
          reinterpret_cast<float*>(key_scales + head * group.key_scale_lane),
          reinterpret_cast<float*>(value_scales + head * group.value_scale_lane)};
}

Lanes Cache::LanesOf(int layer, int head) const {
  const LayerPlace& place = layer_places_[static_cast<size_t>(layer)];
  return LanesIn(groups_[static_cast<size_t>(place.group)], static_cast<size_t>(place.index),
                 static_cast<size_t>(head));
}

CacheStats Cache::stats() const {
  CacheStats stats{bytes_used_,    bytes_peak_, bytes_written_, bytes_copied_, blocks_taken_,
                   blocks_copied_, {}};
  for (const Group& group : groups_) {
    CacheStats::Group& out = stats.groups.emplace_back();
    out.capacity = group.pool.capacity();
    out.committed = group.committed;
    out.used = group.pool.used();
    out.dropped = group.dropped;
    out.block_bytes = group.block_bytes;
    for (BlockId block = 0; block < out.capacity; ++block) {
      out.shared += group.pool.references(block) > 1 ? 1 : 0;
    }
  }
  return stats;
}

// ---- Blocks -------------------------------------------------------------------------------------

Status Cache::Take(int group_number, BlockId previous, BlockId* block) {
  Group& group = groups_[static_cast<size_t>(group_number)];
  const auto fits = [&] {
    return bytes_max_ == 0 || bytes_used_ + group.block_bytes <= bytes_max_;
  };
  while (true) {
    *block = fits() ? group.pool.Take(previous) : kNoBlock;
    if (*block != kNoBlock) break;
    if (reclaim_ && reclaim_()) continue;
    const uint64_t held = static_cast<uint64_t>(group.pool.capacity()) * group.block_bytes;
    return MakeError(ErrorCode::kOutOfMemory,
                     "KV cache: {} bytes are needed for another {} positions, {} of {} are free",
                     group.block_bytes, kBlockTokens,
                     bytes_max_ == 0 ? static_cast<uint64_t>(group.pool.free()) * group.block_bytes
                                     : bytes_max_ - bytes_used_,
                     bytes_max_ == 0 ? held : bytes_max_);
  }
  bytes_used_ += group.block_bytes;
  bytes_peak_ = std::max(bytes_peak_, bytes_used_);
  group.committed = std::max<int64_t>(group.committed, *block + 1);
  ++blocks_taken_;
  if (log_) log_(fmt::format("KV event: block_alloc group={} block={}", group_number, *block));
  return {};
}

void Cache::ReleaseBlock(int group_number, BlockId block) {
  Group& group = groups_[static_cast<size_t>(group_number)];
  const bool last = group.pool.references(block) == 1;
  // A copy that was marked and not made yet still needs what the block holds.
  const auto reads = [&](const BlockCopy& copy) {
    return copy.group == group_number && copy.from == block;
  };
  if (last && std::any_of(copies_.begin(), copies_.end(), reads)) {
    RunCopies(0, 1);
    ClearCopies();
  }
  group.pool.Release(block);
  if (!last) return;
  bytes_used_ -= group.block_bytes;
  if (poison_) Fill(group, block, 0xff);
}

void Cache::Fill(const Group& group, BlockId block, int byte) {
  const size_t b = static_cast<size_t>(block);
  for (size_t layer = 0; layer < group.shape.layers.size(); ++layer) {
    for (size_t head = 0; head < static_cast<size_t>(group.shape.kv_heads); ++head) {
      const Lanes lanes = LanesIn(group, layer, head);
      std::memset(lanes.keys + b * group.slab.keys, byte, group.slab.keys);
      std::memset(lanes.values + b * group.slab.values, byte, group.slab.values);
      std::memset(reinterpret_cast<std::byte*>(lanes.key_scales) + b * group.slab.key_scales, byte,
                  group.slab.key_scales);
      std::memset(reinterpret_cast<std::byte*>(lanes.value_scales) + b * group.slab.value_scales,
                  byte, group.slab.value_scales);
    }
  }
}

Result<BlockId> Cache::TakeBlock(int group, BlockId previous) {
  BlockId block = kNoBlock;
  KVANT_TRY(Take(group, previous, &block));
  return block;
}

void Cache::AddReference(int group, BlockId block) {
  groups_[static_cast<size_t>(group)].pool.AddReference(block);
}

void Cache::Release(int group, BlockId block) { ReleaseBlock(group, block); }

int Cache::references(int group, BlockId block) const {
  return groups_[static_cast<size_t>(group)].pool.references(block);
}

// ---- Steps --------------------------------------------------------------------------------------

Status Cache::CopyOnWrite(int group, TableEntry& entry) {
  if (references(group, entry.id) == 1) return {};
  BlockId copy = kNoBlock;
  KVANT_TRY(Take(group, kNoBlock, &copy));
  copies_.push_back({group, entry.id, copy});
  if (log_) log_(fmt::format("KV event: cow_copy group={} from={} to={}", group, entry.id, copy));
  // The original keeps at least one other holder, so it stays what it is until it is copied.
  ReleaseBlock(group, entry.id);
  entry.id = copy;
  return {};
}

Status Cache::ReserveGroup(int group, Sequence& sequence, int64_t end) {
  BlockTable& table = sequence.tables[static_cast<size_t>(group)];
  const int64_t first = sequence.length / kBlockTokens;
  if (!table.entries.empty() && table.entries.back().number == first) {
    KVANT_TRY(CopyOnWrite(group, table.entries.back()));
  }
  for (int64_t number = std::max(table.end_block(), first); number * kBlockTokens < end; ++number) {
    BlockId block = kNoBlock;
    const BlockId previous = table.entries.empty() ? kNoBlock : table.entries.back().id;
    KVANT_TRY(Take(group, previous, &block));
    // Rows before the length are pruned ones, which have the weight zero but must be finite.
    if (number * kBlockTokens < sequence.length)
      Fill(groups_[static_cast<size_t>(group)], block, 0);
    table.entries.push_back({number, block});
  }
  return {};
}

Status Cache::Reserve(Sequence& sequence, int64_t tokens) {
  KVANT_CHECK(sequence.reserved == 0 && tokens > 0);
  const int64_t end = sequence.length + tokens;
  if (end > context_) {
    return MakeError(ErrorCode::kContextFull, "{} tokens and {} more exceed the context of {}",
                     sequence.length, tokens, context_);
  }
  for (int group = 0; group < groups(); ++group) {
    if (sequence.replaying && shape(group).window == 0) continue;
    const Status status = ReserveGroup(group, sequence, end);
    if (!status.ok()) {
      Rollback(sequence);
      return status;
    }
  }
  sequence.reserved = tokens;
  return {};
}

void Cache::RunCopies(int member, int members) {
  int task = 0;
  for (const BlockCopy& copy : copies_) {
    const Group& group = groups_[static_cast<size_t>(copy.group)];
    const size_t from = static_cast<size_t>(copy.from);
    const size_t to = static_cast<size_t>(copy.to);
    const auto copy_slab = [from, to](std::byte* lane, size_t slab) {
      std::memcpy(lane + to * slab, lane + from * slab, slab);
    };
    for (size_t layer = 0; layer < group.shape.layers.size(); ++layer) {
      for (size_t head = 0; head < static_cast<size_t>(group.shape.kv_heads); ++head) {
        if (task++ % members != member) continue;
        const Lanes lanes = LanesIn(group, layer, head);
        copy_slab(lanes.keys, group.slab.keys);
        copy_slab(lanes.values, group.slab.values);
        copy_slab(reinterpret_cast<std::byte*>(lanes.key_scales), group.slab.key_scales);
        copy_slab(reinterpret_cast<std::byte*>(lanes.value_scales), group.slab.value_scales);
      }
    }
  }
}

void Cache::ClearCopies() {
  for (const BlockCopy& copy : copies_) {
    bytes_copied_ += groups_[static_cast<size_t>(copy.group)].block_bytes;
    ++blocks_copied_;
  }
  copies_.clear();
}

void Cache::Commit(Sequence& sequence) {
  for (int group = 0; group < groups(); ++group) {
    if (sequence.replaying && shape(group).window == 0) continue;
    bytes_written_ += shape(group).bytes_per_token() * static_cast<uint64_t>(sequence.reserved);
  }
  sequence.length += sequence.reserved;
  sequence.reserved = 0;
  for (int group = 0; group < groups(); ++group) {
    DropBehindWindow(group, sequence.tables[static_cast<size_t>(group)], sequence.length);
  }
}

void Cache::Rollback(Sequence& sequence) {
  sequence.reserved = 0;
  for (int group = 0; group < groups(); ++group) {
    if (sequence.replaying && shape(group).window == 0) continue;
    Shrink(group, sequence.tables[static_cast<size_t>(group)], sequence.length);
  }
}

void Cache::Shrink(int group, BlockTable& table, int64_t positions) {
  while (!table.entries.empty() && table.entries.back().number * kBlockTokens >= positions) {
    ReleaseBlock(group, table.entries.back().id);
    table.entries.pop_back();
  }
}

void Cache::DropBehindWindow(int group, BlockTable& table, int64_t length) {
  if (shape(group).window == 0) return;
  const int64_t needed = std::max<int64_t>(0, shape(group).FirstVisible(length) - kRewindSlack);
  const int64_t first = needed / kBlockTokens;
  if (first <= table.first_block()) return;
  auto kept = table.entries.begin();
  groups_[static_cast<size_t>(group)].dropped += static_cast<uint64_t>(first - table.first_block());
  for (; kept != table.entries.end() && kept->number < first; ++kept) ReleaseBlock(group, kept->id);
  table.entries.erase(table.entries.begin(), kept);
  if (log_) {
    log_(fmt::format("KV event: evict group={} positions=[{},{})", group, table.first_position,
                     first * kBlockTokens));
  }
  table.first_position = first * kBlockTokens;
}

}  // namespace kvant::kv
