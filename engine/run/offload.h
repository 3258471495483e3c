// Opens the device of an offload, and chooses the layers that it has room for.
#pragma once

#include <memory>
#include <vector>

#include "engine/kv/stores/device_space.h"
#include "kvant/model.h"
#include "kvant/result.h"
#include "kvant/session_options.h"

namespace kvant {

struct Offloaded {
  std::shared_ptr<kv::DeviceSpace> space;  // null: there is no offload
  std::vector<int> layers;                 // cache ids
};

// Opens the device, and chooses the first layers for which it has memory (with KvDevice::kAuto;
// otherwise all of them). kNotSupported without a device, kOutOfMemory.
Result<Offloaded> OpenOffload(const Model& model, const SessionOptions& options);

}  // namespace kvant
