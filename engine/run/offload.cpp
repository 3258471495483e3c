#include "engine/run/offload.h"

#include <algorithm>
#include <utility>

#include "base/result.h"
#include "engine/model/offload_layers.h"
#include "engine/run/memory_plan.h"

namespace kvant {
Result<Offloaded> OpenOffload(const Model& model, const SessionOptions& options) {
  Offloaded out;
  if (options.offload == Offload::kNone) return out;
  auto opened = cuda::Device::Open();
  if (!opened.ok()) {
    return MakeError(opened.error().code, "offload: {}", opened.error().message);
  }
  const std::shared_ptr<cuda::Device> device = std::move(*opened);
  out.layers = OffloadableLayers(model, options);
  const bool of_host = options.kv_device == KvDevice::kCpu;
  if (!of_host) {
    KVANT_ASSIGN(const uint64_t free_bytes, device->FreeBytes());
    const uint64_t passes = OffloadedPassBytes(model, options);
    const uint64_t room = free_bytes > passes ? free_bytes - passes : 0;
    const size_t wanted = out.layers.size();
    const uint64_t needed = OffloadedCacheBytes(model, options, out.layers);
    while (!out.layers.empty() && OffloadedCacheBytes(model, options, out.layers) > room) {
      out.layers.pop_back();
    }
    if (out.layers.empty() ||
        (options.kv_device == KvDevice::kCuda && out.layers.size() < wanted)) {
      return MakeError(ErrorCode::kOutOfMemory,
                       "CUDA device {}: {} bytes are needed for the KV cache of {} layers and {} "
                       "for passes, {} are free; {} of the layers would fit",
                       device->facts().name, needed, wanted, passes, free_bytes, out.layers.size());
    }
  }
  out.space = std::make_shared<kv::DeviceSpace>(
      device, of_host ? cuda::MemoryKind::kHost : cuda::MemoryKind::kDevice);
  return out;
}

}  // namespace kvant
