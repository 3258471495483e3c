#include "engine/offload.h"

#include <algorithm>
#include <bit>

#include "base/result.h"
#include "cuda/kernels/params.h"
#include "engine/graph/plan.h"
#include "engine/kv/kv_cache.h"
#include "engine/memory_plan.h"
#include "engine/offload_layers.h"

namespace kvant {
uint64_t OffloadedCacheBytes(const Model& model, const SessionOptions& options,
                             const std::vector<int>& layers) {
  kv::CacheOptions cache = CacheOptionsFor(model, options, layers);
  std::erase_if(cache.groups, [](const kv::GroupShape& shape) {
    return shape.store != kv::DeviceStore::kName;
  });
  cache.bytes_max = 0;
  cache.commit = true;  // a device has no memory on demand
  return kv::Cache::BytesNeeded(cache);
}

uint64_t OffloadedPassBytes(const Model& model, const SessionOptions& options) {
  uint64_t row = 0;
  for (const graph::Value& value : model.plan().values()) {
    if (value.kind == cpu::ActivationKind::kFloat32 && value.rows == graph::RowSpace::kPass) {
      row = std::max<uint64_t>(row, value.row_bytes);
    }
  }
  const auto chunk = static_cast<uint64_t>(options.chunk);
  const auto few = static_cast<uint64_t>(std::min(options.sequences, kSharedRowsMax));
  const auto spans = static_cast<uint64_t>(options.context / cuda::kSpanPositions + 1);
  return 2 * std::bit_ceil(chunk * row) + std::bit_ceil(few * row * std::bit_ceil(spans));
}

Result<Offloaded> OpenOffload(const Model& model, const SessionOptions& options) {
  Offloaded out;
  if (options.offload == Offload::kNone) return out;
  KVANT_ASSIGN(std::shared_ptr<cuda::Device> device, cuda::Device::Open());
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
                       device->facts().name, needed, wanted, passes, free_bytes,
                       out.layers.size());
    }
  }
  out.space = std::make_shared<kv::DeviceSpace>(
      std::move(device), of_host ? cuda::MemoryKind::kHost : cuda::MemoryKind::kDevice);
  return out;
}

}  // namespace kvant
