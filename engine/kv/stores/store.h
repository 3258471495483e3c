// Holds the bytes of a group's blocks, and copies and fills them: nothing else in the cache knows
// addresses. A new store is a file here and a line in store_list.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/kv/accounting/block_pool.h"

namespace kvant::kv {

class HostStore;

class Store {
 public:
  virtual ~Store() = default;

  // Copies block `from` to block `to` in all layers and heads: the share of member number `member`
  // of a team of `members`.
  virtual void Copy(BlockId from, BlockId to, int member, int members) = 0;
  virtual void Fill(BlockId block, std::byte value) = 0;

  // This store if the CPU can read its blocks, otherwise null.
  virtual const HostStore* host() const { return nullptr; }
};

}  // namespace kvant::kv
