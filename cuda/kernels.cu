// The kernels for the device: thin entries to the templates of cuda/kernels/, whose names
// cuda/device.cpp looks for.
#include "cuda/kernels/hopper.h"
#include "cuda/kernels/latent_rows.h"
#include "cuda/kernels/span_rows.h"

namespace kvant::cuda {
namespace {

extern __shared__ __align__(128) std::byte shared_bytes[];

template <class Block>
__device__ Block ThisBlock() {
  Block block;
  block.x = static_cast<int>(blockIdx.x);
  block.y = static_cast<int>(blockIdx.y);
  block.z = static_cast<int>(blockIdx.z);
  block.shared = shared_bytes;
  return block;
}

}  // namespace

#define KVANT_SPANS(dims, tiles, blocks_per_sm)                                      \
  extern "C" __global__ void __launch_bounds__(kSpanThreads, blocks_per_sm)          \
      kvant_spans_##dims##_##tiles(const __grid_constant__ AttentionParams params) { \
    GpuBlock block = ThisBlock<GpuBlock>();                                          \
    SpanRows<dims, tiles>::Run(block, params);                                       \
  }

KVANT_SPANS(64, 1, 3)
KVANT_SPANS(128, 1, 3)
KVANT_SPANS(256, 1, 2)
KVANT_SPANS(64, 4, 1)
KVANT_SPANS(128, 4, 1)
KVANT_SPANS(256, 4, 1)

extern "C" __global__ void __launch_bounds__(kSpanThreads, 1)
    kvant_latents(const __grid_constant__ AttentionParams params) {
  GpuBlock block = ThisBlock<GpuBlock>();
  LatentRows::Run(block, params);
}

// Empty on devices that have none of these instructions; cuda/device.cpp does not start it there.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define KVANT_HOPPER_BODY(dims, codes)          \
  HopperBlock block = ThisBlock<HopperBlock>(); \
  HopperRows<dims, codes>::Run(block, params);
#else
#define KVANT_HOPPER_BODY(dims, codes)
#endif
#define KVANT_HOPPER(name, dims, codes)                           \
  extern "C" __global__ void __launch_bounds__(kHopperThreads, 1) \
      name(const __grid_constant__ AttentionParams params) {      \
    KVANT_HOPPER_BODY(dims, codes)                                \
  }

KVANT_HOPPER(kvant_hopper_64, 64, false)
KVANT_HOPPER(kvant_hopper_128, 128, false)
KVANT_HOPPER(kvant_hopper_256, 256, false)
KVANT_HOPPER(kvant_hopper_codes_64, 64, true)
KVANT_HOPPER(kvant_hopper_codes_128, 128, true)
KVANT_HOPPER(kvant_hopper_codes_256, 256, true)

extern "C" __global__ void __launch_bounds__(kThreads) kvant_store(StoreParams params) {
  GpuBlock block = ThisBlock<GpuBlock>();
  StoreRow(block, params);
}

extern "C" __global__ void __launch_bounds__(kMergeThreads) kvant_merge(MergeParams params) {
  GpuBlock block = ThisBlock<GpuBlock>();
  MergeSpans(block, params, static_cast<int>(gridDim.y));
}

extern "C" __global__ void __launch_bounds__(kThreads) kvant_copy(CopyParams params) {
  GpuBlock block = ThisBlock<GpuBlock>();
  CopyRanges(block, params, static_cast<int>(gridDim.y));
}

}  // namespace kvant::cuda
