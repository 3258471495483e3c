// Where the bytes of a group's blocks lie, and what is done to them: the only part of the cache
// that knows addresses. A new store is a file here and a line in store_list.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/kv/accounting/block_pool.h"

namespace kvant::kv {

class HostStore;

class Store {
 public:
  virtual ~Store() = default;

  // Bytes [all layers and heads] of `to` become those of `from`; member number `member` of a team
  // of `members` makes its share.
  virtual void Copy(BlockId from, BlockId to, int member, int members) = 0;
  virtual void Fill(BlockId block, std::byte value) = 0;

  // Itself where the CPU can read it, or null.
  virtual const HostStore* host() const { return nullptr; }
};

}  // namespace kvant::kv
