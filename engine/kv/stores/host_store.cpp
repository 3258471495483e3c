// The order of lanes in a group's memory: for each layer the key lanes of all heads, then their
// value lanes, then the lanes of key scales and of value scales.
#include "engine/kv/stores/host_store.h"

#include <cstring>

#include "base/result.h"

namespace kvant::kv {
namespace {

constexpr size_t kLaneAlignment = 64;

SlabBytes LaneBytes(const SlabBytes& slab, int64_t blocks) {
  const auto lane = [blocks](size_t bytes) {
    return RoundUp(bytes * static_cast<size_t>(blocks), kLaneAlignment);
  };
  return {lane(slab.keys), lane(slab.values), lane(slab.key_scales), lane(slab.value_scales)};
}

}  // namespace

HostStore::HostStore(const GroupShape& shape, int64_t blocks)
    : layers_(shape.layers.size()),
      heads_(static_cast<size_t>(shape.kv_heads)),
      slab_(shape.slab()),
      lane_(LaneBytes(slab_, blocks)),
      layer_bytes_(heads_ * lane_.total()) {}

Result<std::unique_ptr<Store>> HostStore::Create(const GroupShape& shape, int64_t blocks,
                                                 Commitment commitment) {
  std::unique_ptr<HostStore> store(new HostStore(shape, blocks));
  KVANT_ASSIGN(store->memory_,
               AlignedBuffer::Allocate(store->layers_ * store->layer_bytes_, "KV cache"));
  if (commitment == Commitment::kAtOnce) store->memory_.Commit();
  return std::unique_ptr<Store>(std::move(store));
}

Lanes HostStore::LanesOf(size_t layer, size_t head) const {
  std::byte* keys = memory_.data() + layer * layer_bytes_;
  std::byte* values = keys + heads_ * lane_.keys;
  std::byte* key_scales = values + heads_ * lane_.values;
  std::byte* value_scales = key_scales + heads_ * lane_.key_scales;
  return {keys + head * lane_.keys, values + head * lane_.values,
          key_scales + head * lane_.key_scales, value_scales + head * lane_.value_scales, slab_};
}

OpenBlock HostStore::Open(size_t layer, size_t head, BlockId block, Access /*access*/) {
  return OpenBlock(LanesOf(layer, head).At(block));
}

template <class Visit>
void HostStore::ForEachLane(const Visit& visit) const {
  for (size_t layer = 0; layer < layers_; ++layer) {
    for (size_t head = 0; head < heads_; ++head) visit(LanesOf(layer, head));
  }
}

void HostStore::Copy(BlockId from, BlockId to, int member, int members) {
  int task = 0;
  ForEachLane([&](const Lanes& lanes) {
    if (task++ % members != member) return;
    const BlockPlace source = lanes.At(from);
    const BlockPlace target = lanes.At(to);
    std::memcpy(target.keys, source.keys, slab_.keys);
    std::memcpy(target.values, source.values, slab_.values);
    std::memcpy(target.key_scales, source.key_scales, slab_.key_scales);
    std::memcpy(target.value_scales, source.value_scales, slab_.value_scales);
  });
}

void HostStore::Fill(BlockId block, std::byte value) {
  const int byte = static_cast<int>(value);
  ForEachLane([&](const Lanes& lanes) {
    const BlockPlace place = lanes.At(block);
    std::memset(place.keys, byte, slab_.keys);
    std::memset(place.values, byte, slab_.values);
    std::memset(place.key_scales, byte, slab_.key_scales);
    std::memset(place.value_scales, byte, slab_.value_scales);
  });
}

}  // namespace kvant::kv
