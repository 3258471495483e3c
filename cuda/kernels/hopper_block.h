// The thread block of hopper.h: the operations that a device of compute capability 9.0 has beside
// GpuBlock, and their forms on the host. Matrices lie in shared memory as cores of 8 x 8 halves
// (hopper.h); a `strip` is the distance in bytes from a strip of cores to the next, along the rows
// of a left matrix and along the columns of a right one. Along the other side cores follow each
// other.
#pragma once

#include "cuda/kernels/block.h"
#include "cuda/kernels/layouts.h"

namespace kvant::cuda {

// How a thread has brought its part of a slot, and whether sums go on with what is there.
enum class Brought : uint8_t { kCopied, kWritten };
enum class Sums : uint8_t { kNew, kGoOn };

#ifdef __CUDACC__

// Operands of the instructions: the accumulators of 64 rows and N columns are N / 2 registers.
#define KVANT_LIST_32                                                                \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, " \
  "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KVANT_LIST_32_TO_64                                                          \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KVANT_LIST_64_TO_128                                                         \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, " \
  "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "   \
  "%123, %124, %125, %126, %127"
#define KVANT_SUM(n) \
  "+f"(c[n][0].value), "+f"(c[n][1].value), "+f"(c[n][2].value), "+f"(c[n][3].value)
#define KVANT_SUMS_4(n) KVANT_SUM(n), KVANT_SUM(n + 1), KVANT_SUM(n + 2), KVANT_SUM(n + 3)
#define KVANT_SUMS_8(n) KVANT_SUMS_4(n), KVANT_SUMS_4(n + 4)
#define KVANT_SUMS_16(n) KVANT_SUMS_8(n), KVANT_SUMS_8(n + 8)
#define KVANT_SUMS_32(n) KVANT_SUMS_16(n), KVANT_SUMS_16(n + 16)

class HopperBlock : public GpuBlock {
 public:
  // The warpgroup of this thread.
  KVANT_GPU static int Group() { return static_cast<int>(threadIdx.x) / 128; }
  template <int kRegisters, bool kMore>
  KVANT_GPU static void SetRegisters() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (kMore) {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
    } else {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
    }
#endif
  }

  // A ring of slots for copies, numbered from 0 on: copy n is in slot n modulo kSlots. It is full
  // once the 128 threads that bring it have arrived twice each, and empty once all warps of
  // `groups` groups have given it back.
  template <int kSlots>
  KVANT_GPU void OpenRing(std::byte* barriers, int groups) {
    barriers_ = static_cast<uint32_t>(__cvta_generic_to_shared(barriers));
    slots_ = kSlots;
    if (threadIdx.x != 0) return;
    for (int slot = 0; slot < kSlots; ++slot) {
      Init(Full(slot), 2 * 128);
      Init(Empty(slot), 4 * groups);
    }
  }
  // Lets the tensor cores see, once a barrier has passed, the data that this thread has written to
  // shared memory.
  KVANT_GPU static void FenceForTensorCores() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  // A barrier of the producing warpgroup.
  KVANT_GPU static void GroupBarrier() { asm volatile("bar.sync 1, 128;" ::: "memory"); }

  KVANT_GPU void WaitFull(int number) const {
    Await(Full(number % slots_), number / slots_ & 1);
    FenceForTensorCores();
  }
  KVANT_GPU void WaitEmpty(int number) const {
    Await(Empty(number % slots_), (number / slots_ & 1) ^ 1);
  }
  // Written data needs a fence, which would make a thread wait for copies under way.
  KVANT_GPU void ArriveFull(int number, Brought brought) const {
    // Arrives once for the copies under way, once for the written data.
    const uint32_t full = Full(number % slots_);
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full) : "memory");
    if (brought == Brought::kWritten) FenceForTensorCores();
    Arrive(full);
  }
  KVANT_GPU void GiveBack(int number) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) Arrive(Empty(number % slots_));
  }

  // Products are begun, multiplied and ended as a group; WaitProducts waits until at most kUnderWay
  // groups are under way.
  KVANT_GPU static void BeginProducts() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
  }
  KVANT_GPU static void EndProducts() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
  }
  template <int kUnderWay>
  KVANT_GPU static void WaitProducts() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kUnderWay) : "memory");
#endif
  }

  // c = a b or c += a b: 64 rows, 16 columns of a, kColumns columns of b.
  template <int kColumns>
  KVANT_GPU static void MultiplyShared(PerThread<float> (&c)[kColumns / 8][4], const std::byte* a,
                                       int a_strip, const std::byte* b, int b_strip, Sums sums) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    const uint64_t left = Matrix(a, a_strip);
    const uint64_t right = Matrix(b, b_strip);
    const int scale = sums == Sums::kGoOn ? 1 : 0;
    if constexpr (kColumns == 64) {
      asm volatile(
          "{\n.reg .pred adds;\nsetp.ne.b32 adds, %34, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" KVANT_LIST_32
          "}, %32, %33, adds, 1, 1, 0, 1;\n}\n"
          : KVANT_SUMS_8(0)
          : "l"(left), "l"(right), "r"(scale));
    } else {
      static_assert(kColumns == 128);
      asm volatile(
          "{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" KVANT_LIST_32
          ", " KVANT_LIST_32_TO_64 "}, %64, %65, adds, 1, 1, 0, 1;\n}\n"
          : KVANT_SUMS_16(0)
          : "l"(left), "l"(right), "r"(scale));
    }
#endif
  }
  // Multiplies like MultiplyShared, where a is in registers as for Mma.
  template <int kColumns>
  KVANT_GPU static void MultiplyRegisters(PerThread<float> (&c)[kColumns / 8][4],
                                          const PerThread<uint32_t> (&a)[4], const std::byte* b,
                                          int b_strip, Sums sums) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    const uint64_t right = Matrix(b, b_strip);
    const int scale = sums == Sums::kGoOn ? 1 : 0;
    if constexpr (kColumns == 64) {
      asm volatile(
          "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" KVANT_LIST_32
          "}, {%32, %33, %34, %35}, %36, adds, 1, 1, 1;\n}\n"
          : KVANT_SUMS_8(0)
          : "r"(a[0].value), "r"(a[1].value), "r"(a[2].value), "r"(a[3].value), "l"(right),
            "r"(scale));
    } else if constexpr (kColumns == 128) {
      asm volatile(
          "{\n.reg .pred adds;\nsetp.ne.b32 adds, %69, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" KVANT_LIST_32
          ", " KVANT_LIST_32_TO_64 "}, {%64, %65, %66, %67}, %68, adds, 1, 1, 1;\n}\n"
          : KVANT_SUMS_16(0)
          : "r"(a[0].value), "r"(a[1].value), "r"(a[2].value), "r"(a[3].value), "l"(right),
            "r"(scale));
    } else {
      static_assert(kColumns == 256);
      asm volatile(
          "{\n.reg .pred adds;\nsetp.ne.b32 adds, %133, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" KVANT_LIST_32
          ", " KVANT_LIST_32_TO_64 ", " KVANT_LIST_64_TO_128
          "}, {%128, %129, %130, %131}, %132, adds, 1, 1, 1;\n}\n"
          : KVANT_SUMS_32(0)
          : "r"(a[0].value), "r"(a[1].value), "r"(a[2].value), "r"(a[3].value), "l"(right),
            "r"(scale));
    }
#endif
  }

 private:
  // The descriptor of a matrix: its address, the distance of cores that follow each other, and that
  // of strips, in units of 16 bytes.
  KVANT_GPU static uint64_t Matrix(const std::byte* at, int strip) {
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(at));
    return static_cast<uint64_t>(address >> 4) | static_cast<uint64_t>(128 >> 4) << 16 |
           static_cast<uint64_t>(strip >> 4) << 32;
  }
  KVANT_GPU uint32_t Full(int slot) const { return barriers_ + static_cast<uint32_t>(slot * 16); }
  KVANT_GPU uint32_t Empty(int slot) const { return Full(slot) + 8; }
  KVANT_GPU static void Init(uint32_t barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
  }
  KVANT_GPU static void Arrive(uint32_t barrier) {
    asm volatile(
        "{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}\n" ::"r"(barrier)
        : "memory");
  }
  int slots_;
  uint32_t barriers_;
};

#undef KVANT_LIST_32
#undef KVANT_LIST_32_TO_64
#undef KVANT_LIST_64_TO_128
#undef KVANT_SUM
#undef KVANT_SUMS_4
#undef KVANT_SUMS_8
#undef KVANT_SUMS_16
#undef KVANT_SUMS_32

#else

// On the host a warpgroup's steps are run when what they wait for is there.
class HopperBlock : public HostBlock {
 public:
  template <class Body>
  void InGroup(int group, const Body& body) {
    const int all = last;
    first = 128 * group;
    last = first + 128;
    body();
    first = 0;
    last = all;
  }
  template <int kSlots>
  static void OpenRing(std::byte* /*barriers*/, int /*groups*/) {}
  static void FenceForTensorCores() {}
  static void GroupBarrier() {}
  static void WaitFull(int /*number*/) {}
  static void WaitEmpty(int /*number*/) {}
  static void ArriveFull(int /*number*/, Brought /*brought*/) {}
  static void GiveBack(int /*number*/) {}
  static void BeginProducts() {}
  static void EndProducts() {}
  template <int kUnderWay>
  static void WaitProducts() {}

  template <int kColumns>
  void MultiplyShared(PerThread<float> (&c)[kColumns / 8][4], const std::byte* a, int a_strip,
                      const std::byte* b, int b_strip, Sums sums) const {
    const auto left = [&](int thread, int part) {
      const int row = thread % 128 / 32 * 16 + thread % 32 / 4 + part % 2 * 8;
      const std::byte* at = a + row / 8 * a_strip + part / 2 * 128 + row % 8 * 16;
      return Load<uint32_t>(at + thread % 4 * 4);
    };
    PerThread<uint32_t> fragment[4];
    for (int part = 0; part < 4; ++part) {
      for (int t = first; t < last; ++t) fragment[part][t] = left(t, part);
    }
    MultiplyRegisters<kColumns>(c, fragment, b, b_strip, sums);
  }
  template <int kColumns>
  void MultiplyRegisters(PerThread<float> (&c)[kColumns / 8][4], const PerThread<uint32_t> (&a)[4],
                         const std::byte* b, int b_strip, Sums sums) const {
    if (sums == Sums::kNew) {
      for (auto& four : c) {
        for (PerThread<float>& sum : four) {
          for (int t = first; t < last; ++t) sum[t] = 0.0f;
        }
      }
    }
    PerThread<uint32_t> right[2];
    for (int n = 0; n < kColumns / 8; ++n) {
      for (int part = 0; part < 2; ++part) {
        for (int t = first; t < last; ++t) {
          const std::byte* at = b + n * b_strip + part * 128 + t % 4 * 32 + t % 32 / 4 * 2;
          right[part][t] = Load<Half>(at) | static_cast<uint32_t>(Load<Half>(at + 16)) << 16;
        }
      }
      Mma(c[n], a, right[0], right[1]);
    }
  }
};

#endif

}  // namespace kvant::cuda
