// The stores of this build: one line to include one, one entry in the list. Nothing else names them
// all.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "engine/kv/stores/device_store.h"
#include "engine/kv/stores/host_store.h"
#include "engine/kv/stores/store.h"

namespace kvant::kv {

template <class... Stores>
struct StoreTypes {};

using StoreList = StoreTypes<HostStore>;

// Creates the store that the group's shape names, with room for `blocks` blocks. kNotSupported for
// an unknown name, kOutOfMemory.
template <class... Stores>
Result<std::unique_ptr<Store>> CreateStore(StoreTypes<Stores...> /*list*/, const GroupShape& shape,
                                           int64_t blocks, Commitment commitment) {
  Result<std::unique_ptr<Store>> store =
      MakeError(ErrorCode::kNotSupported, "KV cache: no store \"{}\"", shape.store);
  ((shape.store == Stores::kName ? void(store = Stores::Create(shape, blocks, commitment))
                                 : void()),
   ...);
  return store;
}

// Makes the store of a group with `blocks` blocks.
using StoreMaker = std::function<Result<std::unique_ptr<Store>>(
    const GroupShape& shape, int64_t blocks, Commitment commitment)>;

// Makes the stores of this build; a device's stores lie in `space`. Null: there is no device.
inline StoreMaker ListedStores(std::shared_ptr<DeviceSpace> space = nullptr) {
  return [space](const GroupShape& shape, int64_t blocks, Commitment commitment) {
    if (space != nullptr && shape.store == DeviceStore::kName) {
      return DeviceStore::Create(space, shape, blocks);
    }
    return CreateStore(StoreList(), shape, blocks, commitment);
  };
}

}  // namespace kvant::kv
