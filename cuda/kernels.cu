// The kernels for the device: thin entries to the templates of cuda/kernels/, whose names
// cuda/device.cpp looks for.
#include "cuda/kernels/attention.h"

namespace kvant::cuda {
namespace {

extern __shared__ __align__(16) std::byte shared_bytes[];

__device__ GpuBlock ThisBlock() {
  GpuBlock block;
  block.x = static_cast<int>(blockIdx.x);
  block.y = static_cast<int>(blockIdx.y);
  block.z = static_cast<int>(blockIdx.z);
  block.shared = shared_bytes;
  return block;
}

}  // namespace

#define KVANT_ATTENTION(dims, blocks_per_sm)                            \
  extern "C" __global__ void __launch_bounds__(kThreads, blocks_per_sm) \
      kvant_attention_##dims(AttentionParams params) {                  \
    GpuBlock block = ThisBlock();                                       \
    AttentionTile<dims>::Run(block, params);                            \
  }

KVANT_ATTENTION(64, 3)
KVANT_ATTENTION(128, 2)
KVANT_ATTENTION(256, 2)

extern "C" __global__ void __launch_bounds__(kThreads) kvant_store(StoreParams params) {
  GpuBlock block = ThisBlock();
  StoreRow(block, params);
}

extern "C" __global__ void __launch_bounds__(kThreads) kvant_merge(MergeParams params) {
  GpuBlock block = ThisBlock();
  MergeSpans(block, params, static_cast<int>(gridDim.y));
}

extern "C" __global__ void __launch_bounds__(kThreads) kvant_copy(CopyParams params) {
  GpuBlock block = ThisBlock();
  CopyRanges(block, params, static_cast<int>(gridDim.y));
}

}  // namespace kvant::cuda
