// Creates a cache: the pools and stores of its groups, and the place of each cache layer.
#include "engine/kv/kv_cache.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace kvant::kv {
namespace {

// Blocks of a group's pool: room for a replay beside the sequences. Where memory comes with use
// there is one more, so that full sequences can compute their last tokens again on a copy of the
// block.
int64_t PoolBlocks(const CacheOptions& options, const Policy& policy) {
  return policy.Needed(options.context, options.chunk) * policy.TablesAtOnce(options.sequences) +
         policy.NeededForReplay(options.context) + (options.commit ? 0 : 1);
}

}  // namespace

class Cache::Contents final : public BlockContents {
 public:
  Contents(IdVector<GroupId, std::unique_ptr<Store>> stores, bool poison)
      : stores_(std::move(stores)), poison_(poison) {}

  void Copy(const BlockCopy& copy) override {
    CopyShare(copy, 0, 1);
    store(copy.group).FinishCopies();
  }
  void Clear(GroupId group, BlockId block) override { store(group).Fill(block, std::byte{0}); }
  void Discard(GroupId group, BlockId block) override {
    if (poison_) store(group).Fill(block, std::byte{0xff});
  }

  void CopyShare(const BlockCopy& copy, int member, int members) {
    store(copy.group).Copy(copy.from, copy.to, member, members);
  }

  // All stores, in the order of their groups.
  const IdVector<GroupId, std::unique_ptr<Store>>& stores() const { return stores_; }

 private:
  Store& store(GroupId group) { return *stores_[group]; }

  IdVector<GroupId, std::unique_ptr<Store>> stores_;
  bool poison_;
};

Cache::Cache(std::vector<AccountedGroup> groups, const Limits& limits,
             std::unique_ptr<Contents> contents)
    : Ledger(std::move(groups), limits, *contents), contents_(std::move(contents)) {}

Cache::~Cache() = default;
Cache::Cache(Cache&& other) noexcept = default;
Cache& Cache::operator=(Cache&& other) noexcept = default;

Result<Cache> Cache::Create(const CacheOptions& options, const StoreMaker& maker) {
  const Commitment commitment = options.commit ? Commitment::kAtOnce : Commitment::kOnDemand;
  std::vector<AccountedGroup> accounted;
  IdVector<GroupId, std::unique_ptr<Store>> stores;
  std::vector<LayerPlace> places;
  for (const GroupShape& shape : options.groups) {
    std::unique_ptr<const Policy> policy = shape.MakePolicy();
    const int64_t blocks = PoolBlocks(options, *policy);
    accounted.push_back({std::move(policy), shape.block_bytes(), blocks,
                         static_cast<int64_t>(shape.layers.size())});
    KVANT_ASSIGN(std::unique_ptr<Store> store, maker(shape, blocks, commitment));
    for (size_t index = 0; index < shape.layers.size(); ++index) {
      const size_t id = static_cast<size_t>(shape.layers[index]);
      if (places.size() <= id) places.resize(id + 1);
      places[id] = {store.get(), store->host(), stores.next_id(), index};
    }
    stores.push_back(std::move(store));
  }
  Cache cache(std::move(accounted), {options.context, options.sequences, options.bytes_max},
              std::make_unique<Contents>(std::move(stores), options.poison));
  for (const GroupShape& shape : options.groups) cache.shapes_.push_back(shape);
  cache.places_ = std::move(places);
  cache.source_ = options.source;
  if (options.commit) cache.SetAllCommitted();
  return cache;
}

bool Cache::holds_states() const {
  return std::any_of(shapes_.begin(), shapes_.end(),
                     [](const GroupShape& shape) { return shape.holds_states(); });
}

int64_t Cache::BlocksNeeded(const GroupShape& shape, int64_t context, int64_t chunk) {
  return shape.MakePolicy()->Needed(context, chunk);
}

uint64_t Cache::BytesNeeded(const CacheOptions& options) {
  uint64_t bytes = 0;
  for (const GroupShape& shape : options.groups) {
    const std::unique_ptr<const Policy> policy = shape.MakePolicy();
    const int64_t blocks = options.commit ? PoolBlocks(options, *policy)
                                          : policy->Needed(options.context, options.chunk) *
                                                policy->TablesAtOnce(options.sequences);
    bytes += shape.block_bytes() * static_cast<uint64_t>(blocks);
  }
  return options.bytes_max == 0 ? bytes : std::min(bytes, options.bytes_max);
}

void Cache::RunCopies(int member, int members) {
  for (const BlockCopy& copy : copies()) contents_->CopyShare(copy, member, members);
}

void Cache::FinishCopies() {
  for (const auto& store : contents_->stores()) store->FinishCopies();
  ClearCopies();
}

void Cache::Settle() {
  for (const auto& store : contents_->stores()) store->Settle();
}

void Cache::VisitMemory(const std::function<void(std::span<std::byte> memory)>& visit) const {
  for (const auto& store : contents_->stores()) {
    if (!store->memory().empty()) visit(store->memory());
  }
}

Status Cache::status() const {
  for (const auto& store : contents_->stores()) KVANT_TRY(store->status());
  return {};
}

}  // namespace kvant::kv
