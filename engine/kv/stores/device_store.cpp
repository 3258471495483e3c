#include "engine/kv/stores/device_store.h"

#include <utility>

#include "base/result.h"

namespace kvant::kv {
namespace {

cuda::Element ElementOf(KvType type) {
  return cpu::KvHasScales(type) ? cuda::Element::kInt8 : cuda::Element::kF16;
}

}  // namespace

DeviceStore::DeviceStore(std::shared_ptr<DeviceSpace> space, const GroupShape& shape)
    : space_(std::move(space)),
      shape_(shape),
      slab_(shape.slab()),
      block_bytes_(shape.block_bytes()),
      mirrors_(shape.layers.size()) {
  for (Mirror& mirror : mirrors_) mirror.bytes.resize(slab_.total());
}

Result<std::unique_ptr<Store>> DeviceStore::Create(std::shared_ptr<DeviceSpace> space,
                                                   const GroupShape& shape, int64_t blocks) {
  std::unique_ptr<DeviceStore> store(new DeviceStore(std::move(space), shape));
  Status allocated;
  store->space_->Do([&](cuda::Device& device) -> Status {
    KVANT_ASSIGN(store->memory_,
                 device.Allocate(store->space_->blocks(),
                                 store->block_bytes_ * static_cast<size_t>(blocks)));
    return {};
  });
  KVANT_TRY(store->space_->status());
  return std::unique_ptr<Store>(std::move(store));
}

DeviceStore::~DeviceStore() = default;

cuda::Address DeviceStore::AddressOf(BlockId block) const {
  return memory_.address() + static_cast<uint64_t>(block) * block_bytes_;
}

cuda::LayerBlocks DeviceStore::Describe(const GroupShape& shape, size_t layer) {
  const SlabBytes slab = shape.slab();
  const uint64_t heads = static_cast<uint64_t>(shape.kv_heads);
  cuda::LayerBlocks blocks{};
  blocks.block_bytes = shape.block_bytes();
  blocks.keys = layer * heads * slab.total();
  blocks.values = blocks.keys + heads * slab.keys;
  blocks.key_scales = blocks.values + heads * slab.values;
  blocks.value_scales = blocks.key_scales + heads * slab.key_scales;
  blocks.kv_heads = shape.kv_heads;
  blocks.k_dim = shape.k_dim;
  blocks.v_dim = shape.v_dim;
  blocks.k_type = ElementOf(shape.k_type);
  blocks.v_type = ElementOf(shape.v_type);
  return blocks;
}

cuda::LayerBlocks DeviceStore::BlocksOf(size_t layer) const {
  cuda::LayerBlocks blocks = Describe(shape_, layer);
  blocks.memory = memory_.pointer();
  return blocks;
}

void DeviceStore::Copy(BlockId from, BlockId to, int member, int /*members*/) {
  if (member != 0) return;
  Settle();
  space_->QueueCopy({memory_.pointer(static_cast<size_t>(from) * block_bytes_),
                     memory_.pointer(static_cast<size_t>(to) * block_bytes_), block_bytes_});
}

void DeviceStore::Fill(BlockId block, std::byte value) {
  Settle();
  space_->Changed();
  space_->Do([&](cuda::Device& device) {
    return device.Fill(cuda::Stream::kWork, AddressOf(block), value, block_bytes_);
  });
}

template <class Visit>
Status DeviceStore::ForEachPart(size_t layer, Mirror& mirror, const Visit& visit) const {
  const cuda::LayerBlocks blocks = BlocksOf(layer);
  const cuda::Address block = AddressOf(mirror.block);
  std::byte* place = mirror.bytes.data();
  for (const auto& [part, bytes] :
       {std::pair(blocks.keys, slab_.keys), std::pair(blocks.values, slab_.values),
        std::pair(blocks.key_scales, slab_.key_scales),
        std::pair(blocks.value_scales, slab_.value_scales)}) {
    KVANT_TRY(visit(block + part + mirror.head * bytes, bytes, place));
    place += bytes;
  }
  return {};
}

void DeviceStore::PutBack(size_t layer, Mirror& mirror) {
  if (!std::exchange(mirror.written, false)) return;
  space_->Do([&](cuda::Device& device) -> Status {
    KVANT_TRY(
        ForEachPart(layer, mirror, [&](cuda::Address to, size_t bytes, const std::byte* from) {
          return device.Upload(cuda::Stream::kWork, to, from, bytes);
        }));
    return device.Wait(cuda::Stream::kWork);
  });
}

void DeviceStore::Settle() {
  for (size_t layer = 0; layer < mirrors_.size(); ++layer) PutBack(layer, mirrors_[layer]);
}

OpenBlock DeviceStore::Open(size_t layer, size_t head, BlockId block, Access access) {
  Mirror& mirror = mirrors_[layer];
  if (mirror.block != block || mirror.head != head || mirror.changes != space_->changes()) {
    PutBack(layer, mirror);
    mirror.block = block;
    mirror.head = head;
    mirror.changes = space_->changes();
    space_->Do([&](cuda::Device& device) -> Status {
      KVANT_TRY(ForEachPart(layer, mirror, [&](cuda::Address from, size_t bytes, std::byte* to) {
        return device.Download(cuda::Stream::kWork, to, from, bytes);
      }));
      return device.Wait(cuda::Stream::kWork);
    });
  }
  mirror.written = mirror.written || access == Access::kChange;
  std::byte* keys = mirror.bytes.data();
  std::byte* values = keys + slab_.keys;
  std::byte* key_scales = values + slab_.values;
  return OpenBlock({keys, values, key_scales, key_scales + slab_.key_scales});
}

}  // namespace kvant::kv
