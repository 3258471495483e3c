// Holds the bytes of a group's blocks, copies and fills them, and opens them to the CPU: nothing
// else in the cache knows addresses. A new store is a file here and a line in store_list.h.
//
// Passes read and write the blocks of a host store where they lie (host_store.h). All else opens a
// block, of any store, for as long as it looks at it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/result.h"
#include "engine/kv/accounting/block_pool.h"

namespace kvant::kv {

class DeviceStore;
class HostStore;

// The address where a block's values of one layer and head begin.
struct BlockPlace {
  std::byte* keys;
  std::byte* values;
  std::byte* key_scales;  // [kBlockTokens]; undefined where the format has none
  std::byte* value_scales;
};

enum class Access : uint8_t {
  kRead,
  kChange,  // what is not written keeps its value
};

// A block of one layer and head as the CPU sees it. A store whose blocks lie elsewhere shows a
// copy, which it puts back, if it was opened for change at its end.
class OpenBlock {
 public:
  // A copy of the block; its destructor ends it and puts it back where that is due.
  class Mirror {
   public:
    virtual ~Mirror() = default;
  };

  explicit OpenBlock(const BlockPlace& place, std::unique_ptr<Mirror> mirror = nullptr)
      : place_(place), mirror_(std::move(mirror)) {}

  const BlockPlace& place() const { return place_; }

 private:
  BlockPlace place_;
  std::unique_ptr<Mirror> mirror_;  // null where the block lies in memory of the CPU
};

class Store {
 public:
  virtual ~Store() = default;

  // Copies block `from` to block `to` in all layers and heads: the share of member number `member`
  // of a team of `members`.
  virtual void Copy(BlockId from, BlockId to, int member, int members) = 0;
  // Follows when all members of the team are done with their shares.
  virtual void FinishCopies() {}
  virtual void Fill(BlockId block, std::byte value) = 0;

  // A block of a head of cache layer number `layer` of the group (not its cache id). A block that
  // is open for change is opened by nobody else.
  virtual OpenBlock Open(size_t layer, size_t head, BlockId block, Access access) = 0;

  // Puts the bytes that were written through open blocks where passes read them.
  virtual void Settle() {}
  // The first error of a store whose memory may fail.
  virtual Status status() const { return {}; }

  // The memory of all blocks, where that is the host's own; otherwise empty.
  virtual std::span<std::byte> memory() { return {}; }
  // This store if the CPU can read its blocks where they lie, otherwise null.
  virtual const HostStore* host() const { return nullptr; }
  // This store if its blocks are a device's to read, otherwise null.
  virtual const DeviceStore* device() const { return nullptr; }
};

}  // namespace kvant::kv
