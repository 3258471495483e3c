// A thread block, as the kernels see it: on the device its threads run side by side, on the host
// one after the other, so that the same source is tested where there is no device.
//
// A kernel is a sequence of steps. Each(f) calls f(thread) for every thread; what threads keep from
// step to step is PerThread, one number on the device and an array of them on the host. Products of
// matrices and what lanes of a warp exchange are steps, too. A Barrier stands between steps that
// exchange numbers through memory.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/kernels/params.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define KVANT_GPU __device__ __forceinline__
#else
#include <algorithm>
#include <cmath>

#include "base/half.h"
#define KVANT_GPU inline
#endif

namespace kvant::cuda {

// Bits of a 16-bit float.
using Half = uint16_t;

#ifdef __CUDACC__

template <class T>
struct PerThread {
  T value;
  KVANT_GPU T& operator[](int /*thread*/) { return value; }
  KVANT_GPU const T& operator[](int /*thread*/) const { return value; }
};

KVANT_GPU Half ToHalf(float value) { return __half_as_ushort(__float2half_rn(value)); }
KVANT_GPU float ToFloat(Half half) { return __half2float(__ushort_as_half(half)); }
KVANT_GPU float Exp2(float x) { return exp2f(x); }
KVANT_GPU float Tanh(float x) { return tanhf(x); }
KVANT_GPU float Round(float x) { return rintf(x); }
KVANT_GPU float Greater(float a, float b) { return fmaxf(a, b); }
KVANT_GPU float Lesser(float a, float b) { return fminf(a, b); }
KVANT_GPU float AddExact(float a, float b) { return __fadd_rn(a, b); }
KVANT_GPU float MultiplyExact(float a, float b) { return __fmul_rn(a, b); }
KVANT_GPU float Infinity() { return __int_as_float(0x7f800000); }
KVANT_GPU float NotANumber() { return __int_as_float(0x7fffffff); }
KVANT_GPU bool IsFinite(float x) { return fabsf(x) <= 3.402823466e38f; }

class GpuBlock {
 public:
  int x, y, z;
  std::byte* shared;

  template <class Step>
  KVANT_GPU void Each(const Step& step) {
    step(static_cast<int>(threadIdx.x));
  }
  // The steps of `body` are those of the first `warps` warps alone.
  template <class Body>
  KVANT_GPU void Warps(int warps, const Body& body) {
    if (static_cast<int>(threadIdx.x) / 32 < warps) body();
  }
  KVANT_GPU void Barrier() { __syncthreads(); }

  // Copies 16 bytes to shared memory, which are there after Wait.
  KVANT_GPU static void CopyAhead(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
#else
    *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#endif
  }
  KVANT_GPU static void EndGroup() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  }
  // Waits until at most so many groups, 0 or 1, are under way.
  KVANT_GPU static void Wait(int under_way) {
#if __CUDA_ARCH__ >= 800
    if (under_way == 0) {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    }
#endif
  }

  // The greatest number, or the sum, of each four lanes that follow each other.
  KVANT_GPU static void QuadMax(PerThread<float>& x) {
    x.value = fmaxf(x.value, __shfl_xor_sync(~0u, x.value, 1));
    x.value = fmaxf(x.value, __shfl_xor_sync(~0u, x.value, 2));
  }
  KVANT_GPU static void QuadSum(PerThread<float>& x) {
    x.value += __shfl_xor_sync(~0u, x.value, 1);
    x.value += __shfl_xor_sync(~0u, x.value, 2);
  }
  KVANT_GPU static void WarpMax(PerThread<float>& x) {
    for (int mask = 16; mask > 0; mask /= 2) {
      x.value = fmaxf(x.value, __shfl_xor_sync(~0u, x.value, mask));
    }
  }

  // a = the 16 x 16 halves of a row-major matrix from (row, col) of it on, for the warp's Mma.
  // `first_row` is by warp: 16 rows each.
  KVANT_GPU static void LoadA(PerThread<uint32_t> (&a)[4], const Half* matrix, int stride,
                              int col) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = static_cast<int>(threadIdx.x) / 32 * 16 + lane % 16;
    const unsigned address = static_cast<unsigned>(
        __cvta_generic_to_shared(matrix + row * stride + col + lane / 16 * 8));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a[0].value), "=r"(a[1].value), "=r"(a[2].value), "=r"(a[3].value)
                 : "r"(address));
  }
  // b = two blocks of 16 x 8 halves, side by side, of a row-major matrix from (row, col) on.
  KVANT_GPU static void LoadB(PerThread<uint32_t> (&b)[4], const Half* matrix, int stride, int row,
                              int col) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const unsigned address = static_cast<unsigned>(
        __cvta_generic_to_shared(matrix + (row + lane % 16) * stride + col + lane / 16 * 8));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0].value), "=r"(b[1].value), "=r"(b[2].value), "=r"(b[3].value)
                 : "r"(address));
  }
  // c += a b, for block number `half` of b.
  KVANT_GPU static void Mma(PerThread<float> (&c)[4], const PerThread<uint32_t> (&a)[4],
                            const PerThread<uint32_t> (&b)[4], int half) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0].value), "+f"(c[1].value), "+f"(c[2].value), "+f"(c[3].value)
        : "r"(a[0].value), "r"(a[1].value), "r"(a[2].value), "r"(a[3].value),
          "r"(b[2 * half].value), "r"(b[2 * half + 1].value));
#else
    for (int part = 0; part < 2; ++part) {
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0].value), "+f"(c[1].value), "+f"(c[2].value), "+f"(c[3].value)
          : "r"(a[2 * part].value), "r"(a[2 * part + 1].value), "r"(b[2 * half + part].value));
    }
#endif
  }
};

#else

template <class T>
struct PerThread {
  T values[kThreads];
  T& operator[](int thread) { return values[thread]; }
  const T& operator[](int thread) const { return values[thread]; }
};

inline Half ToHalf(float value) { return F32ToF16(value); }
inline float ToFloat(Half half) { return F16ToF32(half); }
inline float Exp2(float x) { return std::exp2(x); }
inline float Tanh(float x) { return std::tanh(x); }
inline float Round(float x) { return std::nearbyint(x); }
inline float Greater(float a, float b) { return std::fmax(a, b); }
inline float Lesser(float a, float b) { return std::fmin(a, b); }
inline float AddExact(float a, float b) { return a + b; }
inline float MultiplyExact(float a, float b) { return a * b; }
inline float Infinity() { return INFINITY; }
inline float NotANumber() { return NAN; }
inline bool IsFinite(float x) { return std::isfinite(x); }

// The same on the host: a step is a loop over the threads.
class HostBlock {
 public:
  int x, y, z;
  std::byte* shared;
  int threads = kThreads;

  template <class Step>
  void Each(const Step& step) {
    for (int thread = 0; thread < threads; ++thread) step(thread);
  }
  template <class Body>
  void Warps(int warps, const Body& body) {
    const int all = threads;
    threads = std::min(all, 32 * warps);
    body();
    threads = all;
  }
  void Barrier() {}
  static void CopyAhead(void* to, const void* from) { std::memcpy(to, from, 16); }
  static void EndGroup() {}
  static void Wait(int /*under_way*/) {}

  void QuadMax(PerThread<float>& x) const { Reduce<4>(x, Greater); }
  void QuadSum(PerThread<float>& x) const {
    // In the order of a butterfly: neighbours first.
    for (int quad = 0; quad < threads; quad += 4) {
      const float sum = (x[quad] + x[quad + 1]) + (x[quad + 2] + x[quad + 3]);
      for (int i = 0; i < 4; ++i) x[quad + i] = sum;
    }
  }
  void WarpMax(PerThread<float>& x) const { Reduce<32>(x, Greater); }

  void LoadA(PerThread<uint32_t> (&a)[4], const Half* matrix, int stride, int col) const {
    for (int thread = 0; thread < threads; ++thread) {
      const int lane = thread % 32;
      for (int part = 0; part < 4; ++part) {
        const int row = thread / 32 * 16 + lane / 4 + part % 2 * 8;
        const Half* pair = matrix + row * stride + col + lane % 4 * 2 + part / 2 * 8;
        a[part][thread] = Pair(pair[0], pair[1]);
      }
    }
  }
  void LoadB(PerThread<uint32_t> (&b)[4], const Half* matrix, int stride, int row, int col) const {
    for (int thread = 0; thread < threads; ++thread) {
      const int lane = thread % 32;
      for (int part = 0; part < 4; ++part) {
        const Half* first =
            matrix + (row + lane % 4 * 2 + part % 2 * 8) * stride + col + lane / 4 + part / 2 * 8;
        b[part][thread] = Pair(first[0], first[stride]);
      }
    }
  }
  void Mma(PerThread<float> (&c)[4], const PerThread<uint32_t> (&a)[4],
           const PerThread<uint32_t> (&b)[4], int half) const {
    for (int warp = 0; warp < threads; warp += 32) {
      float left[16][16];
      float right[16][8];
      for (int lane = 0; lane < 32; ++lane) {
        for (int part = 0; part < 4; ++part) {
          const uint32_t pair = a[part][warp + lane];
          float* to = &left[lane / 4 + part % 2 * 8][lane % 4 * 2 + part / 2 * 8];
          to[0] = ToFloat(static_cast<Half>(pair));
          to[1] = ToFloat(static_cast<Half>(pair >> 16));
        }
        for (int part = 0; part < 2; ++part) {
          const uint32_t pair = b[2 * half + part][warp + lane];
          right[lane % 4 * 2 + part * 8][lane / 4] = ToFloat(static_cast<Half>(pair));
          right[lane % 4 * 2 + part * 8 + 1][lane / 4] = ToFloat(static_cast<Half>(pair >> 16));
        }
      }
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
          float& sum = c[i][warp + lane];
          for (int k = 0; k < 16; ++k) {
            sum += left[lane / 4 + i / 2 * 8][k] * right[k][lane % 4 * 2 + i % 2];
          }
        }
      }
    }
  }

 private:
  static uint32_t Pair(Half first, Half second) {
    return first | static_cast<uint32_t>(second) << 16;
  }
  template <int kLanes, class Combine>
  void Reduce(PerThread<float>& x, const Combine& combine) const {
    for (int first = 0; first < threads; first += kLanes) {
      float all = x[first];
      for (int i = 1; i < kLanes; ++i) all = combine(all, x[first + i]);
      for (int i = 0; i < kLanes; ++i) x[first + i] = all;
    }
  }
};

#endif

}  // namespace kvant::cuda
