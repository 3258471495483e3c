// The thread block of span_rows.h: what it has beside GpuBlock, and the same on the host. On
// devices of compute capability 9.0 and later a warp begins to copy keys or values to a slot in
// shared memory, and a barrier tells when they are there; elsewhere its lanes copy them at once.
#pragma once

#include "cuda/kernels/block.h"
#include "cuda/kernels/layouts.h"

namespace kvant::cuda {

#ifdef __CUDACC__

class SpanBlock : public GpuBlock {
 public:
  KVANT_GPU void SetThreads(int /*threads*/) {}

  // Barriers for so many copies at a time.
  KVANT_GPU void OpenBarriers(std::byte* barriers, int count) {
#if __CUDA_ARCH__ >= 900
    barriers_ = static_cast<uint32_t>(__cvta_generic_to_shared(barriers));
    parities_ = 0;
    if (threadIdx.x == 0) {
      for (int i = 0; i < count; ++i) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers_ + i * 8) : "memory");
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
#endif
  }
  // The warp begins to copy `bytes` bytes in rows of row_bytes, which then lie `row` apart. What it
  // has read from there before is read.
  KVANT_GPU void BeginCopy(int barrier, std::byte* to, int row, const std::byte* from,
                           int row_bytes, int bytes) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#if __CUDA_ARCH__ >= 900
    const uint32_t full = barriers_ + static_cast<uint32_t>(barrier * 8);
    __syncwarp();
    if (lane == 0) {
      asm volatile(
          "{\n.reg .b64 state;\n"
          "mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}\n" ::"r"(full),
          "r"(bytes)
          : "memory");
    }
    __syncwarp();
    const uint32_t place = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    for (int i = lane; i * row_bytes < bytes; i += 32) {
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
          "[%3];" ::"r"(place + static_cast<uint32_t>(i * row)),
          "l"(from + i * row_bytes), "r"(row_bytes), "r"(full)
          : "memory");
    }
#else
    __syncwarp();
    for (int at = lane * 16; at < bytes; at += 32 * 16) {
      CopyAhead(to + at / row_bytes * row + at % row_bytes, from + at);
    }
    Wait();
    __syncwarp();
#endif
  }
  // Waits for a copy that this warp, or before a Barrier another one, has begun.
  KVANT_GPU void EndCopy(int barrier) {
#if __CUDA_ARCH__ >= 900
    Await(barriers_ + static_cast<uint32_t>(barrier * 8), parities_ >> barrier & 1);
    parities_ ^= 1u << barrier;
#endif
  }

 private:
  uint32_t barriers_;
  uint32_t parities_;  // of the phases that are waited for next, by barrier
};

#else

class SpanBlock : public HostBlock {
 public:
  void SetThreads(int threads) { last = threads; }
  static void OpenBarriers(std::byte* /*barriers*/, int /*count*/) {}
  static void BeginCopy(int /*barrier*/, std::byte* to, int row, const std::byte* from,
                        int row_bytes, int bytes) {
    for (int i = 0; i * row_bytes < bytes; ++i) {
      std::memcpy(to + i * row, from + i * row_bytes, static_cast<size_t>(row_bytes));
    }
  }
  static void EndCopy(int /*barrier*/) {}
};

#endif

}  // namespace kvant::cuda
