// The memory that offloaded layers take on a device, and how many of them it has room for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kv/stores/device_space.h"
#include "kvant/model.h"
#include "kvant/result.h"
#include "kvant/session_options.h"

namespace kvant {

// The bytes of a device's memory that the cache of these layers takes, and what passes need
// beside it.
uint64_t OffloadedCacheBytes(const Model& model, const SessionOptions& options,
                             const std::vector<int>& layers);
uint64_t OffloadedPassBytes(const Model& model, const SessionOptions& options);

struct Offloaded {
  std::shared_ptr<kv::DeviceSpace> space;  // null: there is no offload
  std::vector<int> layers;                 // cache ids
};

// Opens the device, and chooses the first of these layers for which it has memory (with
// KvDevice::kAuto; otherwise all of them). kNotSupported without a device, kOutOfMemory.
Result<Offloaded> OpenOffload(const Model& model, const SessionOptions& options);

}  // namespace kvant
