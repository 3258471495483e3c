// Blocks in memory that a device reads (cuda/kernels/params.h), block-major: all layers and heads
// of a block are one range. The CPU sees a copy of one layer and head of a block at a time.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/kv/stores/device_space.h"
#include "engine/kv/stores/group_shape.h"
#include "engine/kv/stores/store.h"

namespace kvant::kv {

class DeviceStore final : public Store {
 public:
  static constexpr std::string_view kName = "cuda";

  // kOutOfMemory, also where the space has failed before.
  static Result<std::unique_ptr<Store>> Create(std::shared_ptr<DeviceSpace> space,
                                               const GroupShape& shape, int64_t blocks);
  ~DeviceStore() override;

  void Copy(BlockId from, BlockId to, int member, int members) override;
  void FinishCopies() override { space_->RunCopies(); }
  void Fill(BlockId block, std::byte value) override;
  OpenBlock Open(size_t layer, size_t head, BlockId block, Access access) override;
  void Settle() override;
  Status status() const override { return space_->status(); }
  const DeviceStore* device() const override { return this; }

  // The blocks of cache layer number `layer` of the group, as kernels see them.
  cuda::LayerBlocks BlocksOf(size_t layer) const;
  // The blocks of one layer in a group of this shape; without memory.
  static cuda::LayerBlocks Describe(const GroupShape& shape, size_t layer);

 private:
  // A layer's copy of one head's part of a block.
  struct Mirror {
    size_t head = 0;
    BlockId block = kNoBlock;  // kNoBlock: it is of none
    uint64_t changes = 0;      // of the space, when it was taken
    bool written = false;      // and not put back yet
    std::vector<std::byte> bytes;
  };

  DeviceStore(std::shared_ptr<DeviceSpace> space, const GroupShape& shape);
  // Calls visit(address in the device's memory, bytes, place in the mirror) for the four parts.
  template <class Visit>
  Status ForEachPart(size_t layer, Mirror& mirror, const Visit& visit) const;
  void PutBack(size_t layer, Mirror& mirror);
  cuda::Address AddressOf(BlockId block) const;

  std::shared_ptr<DeviceSpace> space_;
  GroupShape shape_;
  SlabBytes slab_;
  uint64_t block_bytes_;
  cuda::Memory memory_;
  std::vector<Mirror> mirrors_;  // by layer
};

}  // namespace kvant::kv
