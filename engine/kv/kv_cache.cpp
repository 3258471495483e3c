// Tables, transactions and addresses of the KV cache.
#include "engine/kv/kv_cache.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace kvant::kv {
namespace {

constexpr size_t kLaneAlignment = 64;

int64_t CeilDiv(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

// The first position that a query at `position` sees, or 0.
int64_t FirstVisible(const GroupShape& shape, int64_t position) {
  return shape.window == 0 ? 0 : std::max<int64_t>(0, position - shape.window + 1);
}

}  // namespace

uint64_t GroupShape::bytes_per_token() const {
  const uint64_t head = static_cast<uint64_t>(k_dim) * cpu::KvElementBytes(k_type) +
                        static_cast<uint64_t>(v_dim) * cpu::KvElementBytes(v_type);
  return head * static_cast<uint64_t>(kv_heads) * layers.size();
}

size_t Cache::KeySlabBytes(const GroupShape& shape) {
  return static_cast<size_t>(kBlockTokens * shape.k_dim) * cpu::KvElementBytes(shape.k_type);
}

size_t Cache::ValueSlabBytes(const GroupShape& shape) {
  return static_cast<size_t>(kBlockTokens * shape.v_dim) * cpu::KvElementBytes(shape.v_type);
}

int64_t Cache::BlocksNeeded(const GroupShape& shape, int64_t context, int64_t chunk) {
  const int64_t all = CeilDiv(context, kBlockTokens);
  if (shape.window == 0) return all;
  // Before a step the table reaches back over window and slack; the chunk comes on top before
  // anything is dropped.
  const int64_t ring = CeilDiv(shape.window + kRewindSlack + chunk - 1, kBlockTokens) + 1;
  return std::min(all, ring);
}

uint64_t Cache::BytesNeeded(const CacheOptions& options) {
  uint64_t bytes = 0;
  for (const GroupShape& shape : options.groups) {
    const int64_t blocks = BlocksNeeded(shape, options.context, options.chunk);
    bytes += shape.bytes_per_token() * static_cast<uint64_t>(blocks * kBlockTokens);
  }
  return bytes;
}

Result<Cache> Cache::Create(const CacheOptions& options) {
  Cache cache;
  cache.context_ = options.context;
  for (const GroupShape& shape : options.groups) {
    const int64_t blocks = BlocksNeeded(shape, options.context, options.chunk);
    const auto lane_bytes = [blocks](size_t slab) {
      return RoundUp(slab * static_cast<size_t>(blocks), kLaneAlignment);
    };
    Group group{shape,
                BlockPool(blocks),
                {},
                lane_bytes(KeySlabBytes(shape)),
                lane_bytes(ValueSlabBytes(shape))};
    const size_t lanes = shape.layers.size() * static_cast<size_t>(shape.kv_heads);
    KVANT_ASSIGN(group.memory,
                 AlignedBuffer::Allocate(lanes * (group.key_lane_bytes + group.value_lane_bytes),
                                         "KV cache"));
    for (size_t index = 0; index < shape.layers.size(); ++index) {
      const size_t layer = static_cast<size_t>(shape.layers[index]);
      if (cache.layer_places_.size() <= layer) cache.layer_places_.resize(layer + 1);
      cache.layer_places_[layer] = {static_cast<int>(cache.groups_.size()),
                                    static_cast<int>(index)};
    }
    cache.groups_.push_back(std::move(group));
  }
  return cache;
}

Sequence Cache::NewSequence() const {
  Sequence sequence;
  sequence.tables.resize(groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    sequence.tables[i].ids.reserve(static_cast<size_t>(groups_[i].pool.capacity()));
  }
  return sequence;
}

Status Cache::Reserve(Sequence& sequence, int64_t tokens) {
  KVANT_CHECK(sequence.reserved == 0 && tokens > 0);
  const int64_t end = sequence.length + tokens;
  if (end > context_) {
    return MakeError(ErrorCode::kContextFull, "{} tokens and {} more exceed the context of {}",
                     sequence.length, tokens, context_);
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& group = groups_[i];
    BlockTable& table = sequence.tables[i];
    while ((table.first_block + static_cast<int64_t>(table.ids.size())) * kBlockTokens < end) {
      const BlockId block = group.pool.Take(table.ids.empty() ? kNoBlock : table.ids.back());
      if (block == kNoBlock) {
        Rollback(sequence);
        return MakeError(ErrorCode::kOutOfMemory,
                         "KV cache: no free block for {} more tokens ({} of {} blocks used)",
                         tokens, group.pool.used(), group.pool.capacity());
      }
      table.ids.push_back(block);
    }
  }
  sequence.reserved = tokens;
  return {};
}

void Cache::Commit(Sequence& sequence) {
  sequence.length += sequence.reserved;
  sequence.reserved = 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    DropBehindWindow(groups_[i], sequence.tables[i], sequence.length);
  }
}

void Cache::Rollback(Sequence& sequence) {
  sequence.reserved = 0;
  for (size_t i = 0; i < groups_.size(); ++i)
    Shrink(groups_[i], sequence.tables[i], sequence.length);
}

void Cache::Shrink(Group& group, BlockTable& table, int64_t positions) {
  const int64_t keep = std::max<int64_t>(0, CeilDiv(positions, kBlockTokens) - table.first_block);
  while (static_cast<int64_t>(table.ids.size()) > keep) {
    group.pool.Release(table.ids.back());
    table.ids.pop_back();
  }
}

void Cache::DropBehindWindow(Group& group, BlockTable& table, int64_t length) {
  if (group.shape.window == 0) return;
  const int64_t needed = std::max<int64_t>(0, FirstVisible(group.shape, length) - kRewindSlack);
  const int64_t drop =
      std::min(needed / kBlockTokens - table.first_block, static_cast<int64_t>(table.ids.size()));
  if (drop <= 0) return;
  for (int64_t i = 0; i < drop; ++i) group.pool.Release(table.ids[static_cast<size_t>(i)]);
  table.ids.erase(table.ids.begin(), table.ids.begin() + drop);
  table.first_block += drop;
}

int64_t Cache::RewindLimit(const Sequence& sequence) const {
  int64_t limit = 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const int64_t first = sequence.tables[i].first_position();
    if (first > 0) limit = std::max(limit, first + groups_[i].shape.window - 1);
  }
  return limit;
}

Status Cache::Rewind(Sequence& sequence, int64_t length) {
  KVANT_CHECK(sequence.reserved == 0);
  if (length < 0 || length > sequence.length) {
    return MakeError(ErrorCode::kInvalid, "rewind to {}: the sequence has {} tokens", length,
                     sequence.length);
  }
  const int64_t limit = RewindLimit(sequence);
  if (length > 0 && length < limit) {
    return MakeError(ErrorCode::kNotSupported,
                     "rewind to {}: the sliding window still holds what positions from {} on need",
                     length, limit);
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    Shrink(groups_[i], sequence.tables[i], length);
    if (length == 0) sequence.tables[i].first_block = 0;
  }
  sequence.length = length;
  return {};
}

void Cache::Free(Sequence& sequence) {
  sequence.length = 0;
  Rollback(sequence);
  for (BlockTable& table : sequence.tables) table.first_block = 0;
}

uint64_t Cache::bytes_used() const {
  uint64_t bytes = 0;
  for (const Group& group : groups_) {
    bytes +=
        static_cast<uint64_t>(group.pool.used() * kBlockTokens) * group.shape.bytes_per_token();
  }
  return bytes;
}

// A group's memory: for each of its layers, the key lanes of all heads, then their value lanes.
std::byte* Cache::KeyLane(int layer, int head) const {
  const LayerPlace& place = layer_places_[static_cast<size_t>(layer)];
  const Group& group = groups_[static_cast<size_t>(place.group)];
  const size_t heads = static_cast<size_t>(group.shape.kv_heads);
  const size_t layer_bytes = heads * (group.key_lane_bytes + group.value_lane_bytes);
  return group.memory.data() + static_cast<size_t>(place.index) * layer_bytes +
         static_cast<size_t>(head) * group.key_lane_bytes;
}

std::byte* Cache::ValueLane(int layer, int head) const {
  const Group& group = groups_[static_cast<size_t>(group_of_layer(layer))];
  return KeyLane(layer, 0) + static_cast<size_t>(group.shape.kv_heads) * group.key_lane_bytes +
         static_cast<size_t>(head) * group.value_lane_bytes;
}

StepView::StepView(const Cache& cache)
    : cache_(&cache), extents_(static_cast<size_t>(cache.groups())) {
  for (int group = 0; group < cache.groups(); ++group) {
    // A table never has more extents than blocks.
    const int64_t blocks = CeilDiv(cache.context(), kBlockTokens);
    extents_[static_cast<size_t>(group)].reserve(static_cast<size_t>(blocks));
    runs_max_ = std::max(runs_max_, blocks);
  }
}

void StepView::Set(const Sequence& sequence) {
  const int64_t end = sequence.length + sequence.reserved;
  for (size_t group = 0; group < extents_.size(); ++group) {
    std::vector<Extent>& extents = extents_[group];
    extents.clear();
    const BlockTable& table = sequence.tables[group];
    for (size_t i = 0; i < table.ids.size(); ++i) {
      const int64_t first = (table.first_block + static_cast<int64_t>(i)) * kBlockTokens;
      const int64_t count = std::min(kBlockTokens, end - first);
      if (count <= 0) break;
      if (i > 0 && table.ids[i] == table.ids[i - 1] + 1) {
        extents.back().count += count;
      } else {
        extents.push_back({table.ids[i], first, count});
      }
    }
  }
}

const Extent& StepView::ExtentAt(int group, int64_t position) const {
  // Positions of a step are at the end.
  const std::vector<Extent>& extents = extents_[static_cast<size_t>(group)];
  for (size_t i = extents.size(); i-- > 0;) {
    if (extents[i].first_position <= position) return extents[i];
  }
  KVANT_CHECK(false);
  return extents.front();
}

std::byte* StepView::KeyTile(int layer, int head, int64_t position) const {
  const GroupShape& group_shape = shape(layer);
  const Extent& extent = ExtentAt(cache_->group_of_layer(layer), position);
  const size_t tile_bytes = Cache::KeySlabBytes(group_shape) * cpu::kKeyTileTokens / kBlockTokens;
  return cache_->KeyLane(layer, head) +
         static_cast<size_t>(extent.block) * Cache::KeySlabBytes(group_shape) +
         static_cast<size_t>((position - extent.first_position) / cpu::kKeyTileTokens) * tile_bytes;
}

std::byte* StepView::ValueRow(int layer, int head, int64_t position) const {
  const GroupShape& group_shape = shape(layer);
  const Extent& extent = ExtentAt(cache_->group_of_layer(layer), position);
  const size_t row_bytes = Cache::ValueSlabBytes(group_shape) / kBlockTokens;
  return cache_->ValueLane(layer, head) +
         static_cast<size_t>(extent.block) * Cache::ValueSlabBytes(group_shape) +
         static_cast<size_t>(position - extent.first_position) * row_bytes;
}

std::span<const cpu::KvRun> StepView::Runs(int layer, int head, std::span<cpu::KvRun> out) const {
  const GroupShape& group_shape = shape(layer);
  const std::byte* keys = cache_->KeyLane(layer, head);
  const std::byte* values = cache_->ValueLane(layer, head);
  size_t count = 0;
  for (const Extent& extent : extents_[static_cast<size_t>(cache_->group_of_layer(layer))]) {
    const size_t block = static_cast<size_t>(extent.block);
    out[count++] = {keys + block * Cache::KeySlabBytes(group_shape),
                    values + block * Cache::ValueSlabBytes(group_shape), extent.first_position,
                    extent.count};
  }
  return out.first(count);
}

}  // namespace kvant::kv
