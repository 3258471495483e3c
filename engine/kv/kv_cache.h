// The KV cache: blocks of 32 positions in one pool per group of cache layers, and a block table per
// sequence and group. It is an accounting of blocks (accounting/ledger.h) whose contents lie in
// stores (stores/store.h); layers that share policy, heads, dimensions and formats form a group,
// and a block number is valid for all layers and heads of its group.
//
// Thread-safety: one thread changes tables between passes; PassView (pass_view.h) is read-only
// during a pass.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/kv/accounting/ledger.h"
#include "engine/kv/stores/group_shape.h"
#include "engine/kv/stores/host_store.h"
#include "engine/kv/stores/store_list.h"

namespace kvant::kv {

struct CacheOptions {
  std::vector<GroupShape> groups;  // by GroupId
  int64_t context = 0;             // most positions of a sequence
  int64_t source = 0;              // most positions of a source; 0: there are none
  int64_t chunk = 0;               // most rows of one pass
  int64_t sequences = 1;           // how many the pools have room for when nothing is shared
  uint64_t bytes_max = 0;          // most bytes of blocks in use; 0 = as many as the pools hold
  bool commit = false;             // touch all memory at once
  bool poison = false;             // fill freed blocks with NaN, so that reading them shows
};

class Cache : public Ledger {
 public:
  // kOutOfMemory if the address space cannot be reserved. Memory is committed when written.
  static Result<Cache> Create(const CacheOptions& options,
                              const StoreMaker& maker = ListedStores());
  ~Cache();
  Cache(Cache&& other) noexcept;
  Cache& operator=(Cache&& other) noexcept;

  // The most blocks that a sequence holds in a group (Policy::Needed).
  static int64_t BlocksNeeded(const GroupShape& shape, int64_t context, int64_t chunk);
  // Bytes of the pools when all sequences are as long as can be. A replay's blocks count only where
  // all memory is committed at once.
  static uint64_t BytesNeeded(const CacheOptions& options);

  // Makes one member's share of the copies that Reserve listed. FinishCopies follows when all of
  // the team are done.
  void RunCopies(int member, int members);
  void FinishCopies();

  // Calls visit for the memory of each group that has memory of the host.
  void VisitMemory(const std::function<void(std::span<std::byte> memory)>& visit) const;

  // Puts the bytes that were written through open blocks where passes read them.
  void Settle();
  // The first error of a store whose memory may fail; what the cache holds is then not to be used.
  Status status() const;

  // The blocks of a group that a device reads, and the number of a cache layer in its group; null:
  // the CPU does.
  const DeviceStore* DeviceOf(int cache_id) const {
    return places_[static_cast<size_t>(cache_id)].store->device();
  }
  size_t IndexInGroup(int cache_id) const { return places_[static_cast<size_t>(cache_id)].index; }

  // The group of a cache layer.
  GroupId group_of_layer(int cache_id) const {
    return places_[static_cast<size_t>(cache_id)].group;
  }
  const GroupShape& shape(GroupId group) const { return shapes_[group]; }
  // The most positions of a source; 0: the model reads none.
  int64_t source() const { return source_; }
  // The most positions of a group.
  int64_t positions() const { return std::max(context(), source_); }
  // Whether some group holds states.
  bool holds_states() const;
  SlabBytes slab(GroupId group) const { return shape(group).slab(); }
  // A block of a cache layer and head, for whoever is not a pass.
  OpenBlock Open(int cache_id, int head, BlockId block, Access access) const {
    const LayerPlace& place = places_[static_cast<size_t>(cache_id)];
    return place.store->Open(place.index, static_cast<size_t>(head), block, access);
  }
  // The blocks of a cache layer and head where they lie, in a group whose store is a host store.
  Lanes LanesOf(int cache_id, int head) const {
    const LayerPlace& place = places_[static_cast<size_t>(cache_id)];
    return place.host->LanesOf(place.index, static_cast<size_t>(head));
  }

 private:
  // The stores of all groups, as the ledger sees them.
  class Contents;
  struct LayerPlace {
    Store* store = nullptr;
    const HostStore* host = nullptr;  // the same, or null
    GroupId group = kAnyGroup;
    size_t index = 0;  // among the layers of the group
  };

  Cache(std::vector<AccountedGroup> groups, const Limits& limits,
        std::unique_ptr<Contents> contents);

  // The ledger refers to it; a pointer, so that a cache may move.
  std::unique_ptr<Contents> contents_;
  IdVector<GroupId, GroupShape> shapes_;
  std::vector<LayerPlace> places_;  // by cache id
  int64_t source_ = 0;
};

}  // namespace kvant::kv
