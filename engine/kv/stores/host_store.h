// Blocks in memory that the CPU reads, head-major:
//   lane(layer, K|V, head) + block * slab,
// so consecutive numbers are consecutive memory for a head and one sequence is one stream per head.
// The layout inside a slab is that of cpu/kv_format_list.h; scales have lanes of their own.
// Memory is reserved for all blocks and committed when it is first written.
#pragma once

#include <memory>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "engine/kv/stores/group_shape.h"
#include "engine/kv/stores/store.h"

namespace kvant::kv {

// The blocks of one layer and head, one after the other in each lane.
struct Lanes {
  std::byte* keys;
  std::byte* values;
  std::byte* key_scales;
  std::byte* value_scales;
  SlabBytes slab;

  BlockPlace At(BlockId block) const {
    const size_t b = static_cast<size_t>(block);
    return {keys + b * slab.keys, values + b * slab.values, key_scales + b * slab.key_scales,
            value_scales + b * slab.value_scales};
  }
};

class HostStore final : public Store {
 public:
  static constexpr std::string_view kName = "host";

  // kOutOfMemory if the address space cannot be reserved.
  static Result<std::unique_ptr<Store>> Create(const GroupShape& shape, int64_t blocks,
                                               Commitment commitment);

  void Copy(BlockId from, BlockId to, int member, int members) override;
  void Fill(BlockId block, std::byte value) override;
  OpenBlock Open(size_t layer, size_t head, BlockId block, Access access) override;
  std::span<std::byte> memory() override { return memory_.bytes(); }
  const HostStore* host() const override { return this; }

  // The lanes of a head of cache layer number `layer` of the group (not its cache id).
  Lanes LanesOf(size_t layer, size_t head) const;

 private:
  HostStore(const GroupShape& shape, int64_t blocks);
  template <class Visit>
  void ForEachLane(const Visit& visit) const;

  size_t layers_;
  size_t heads_;
  SlabBytes slab_;
  SlabBytes lane_;      // bytes of all blocks of one head
  size_t layer_bytes_;  // of all heads
  AlignedBuffer memory_;
};

}  // namespace kvant::kv
