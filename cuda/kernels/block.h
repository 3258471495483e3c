// A thread block, as the kernels see it: on the device its threads run side by side, on the host
// one after the other, so that the same source is tested where there is no device.
//
// A kernel is a sequence of steps. Each(f) calls f(thread) for every thread. A value that threads
// keep from step to step is PerThread, one value on the device and an array of them on the host.
// Products of matrices and exchanges between the lanes of a warp are steps, too. A Barrier stands
// between steps that exchange values through memory.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/kernels/params.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define KVANT_GPU __device__ __forceinline__
#else
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/half.h"
#define KVANT_GPU inline
#endif

namespace kvant::cuda {

// Bits of a 16-bit float, and of two of them in one word, the first in the lower bits.
using Half = uint16_t;
using HalfPair = uint32_t;

// The words that one load of a thread brings.
struct alignas(8) Words2 {
  uint32_t w[2];
};
struct alignas(16) Words4 {
  uint32_t w[4];
};

KVANT_GPU int Least(int a, int b) { return a < b ? a : b; }
KVANT_GPU int Most(int a, int b) { return a > b ? a : b; }

#ifdef __CUDACC__

template <class T>
struct PerThread {
  T value;
  KVANT_GPU T& operator[](int /*thread*/) { return value; }
  KVANT_GPU const T& operator[](int /*thread*/) const { return value; }
};

KVANT_GPU Half ToHalf(float value) { return __half_as_ushort(__float2half_rn(value)); }
KVANT_GPU float ToFloat(Half half) { return __half2float(__ushort_as_half(half)); }
// To 2 ulp; what is below the normal floats is zero.
KVANT_GPU float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
KVANT_GPU float Tanh(float x) { return tanhf(x); }
KVANT_GPU float Round(float x) { return rintf(x); }
KVANT_GPU float Greater(float a, float b) { return fmaxf(a, b); }
KVANT_GPU float Lesser(float a, float b) { return fminf(a, b); }
KVANT_GPU float AddExact(float a, float b) { return __fadd_rn(a, b); }
KVANT_GPU float MultiplyExact(float a, float b) { return __fmul_rn(a, b); }
KVANT_GPU float MultiplyAdd(float a, float b, float c) { return __fmaf_rn(a, b, c); }
KVANT_GPU float AsFloat(uint32_t bits) { return __uint_as_float(bits); }
KVANT_GPU uint32_t AsBits(float x) { return __float_as_uint(x); }
KVANT_GPU float Infinity() { return __int_as_float(0x7f800000); }
KVANT_GPU float NotANumber() { return __int_as_float(0x7fffffff); }
KVANT_GPU bool IsFinite(float x) { return fabsf(x) <= 3.402823466e38f; }
// Four of the eight bytes of (a, b): those whose numbers are the hexadecimal digits of `order`.
KVANT_GPU uint32_t Permute(uint32_t a, uint32_t b, uint32_t order) {
  return __byte_perm(a, b, order);
}
KVANT_GPU HalfPair Subtract(HalfPair a, HalfPair b) {
  const __half2 difference =
      __hsub2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const HalfPair*>(&difference);
}
KVANT_GPU HalfPair Multiply(HalfPair a, HalfPair b) {
  const __half2 product =
      __hmul2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const HalfPair*>(&product);
}
KVANT_GPU HalfPair ToHalves(float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const HalfPair*>(&pair);
}

class GpuBlock {
 public:
  int x, y, z;
  std::byte* shared;

  KVANT_GPU void SetThreads(int /*threads*/) {}
  template <class Step>
  KVANT_GPU void Each(const Step& step) {
    step(static_cast<int>(threadIdx.x));
  }
  // Runs the steps of `body` on the first `warps` warps alone.
  template <class Body>
  KVANT_GPU void Warps(int warps, const Body& body) {
    if (static_cast<int>(threadIdx.x) / 32 < warps) body();
  }
  // body(warp) for each warp: its steps are that warp's alone.
  template <class Body>
  KVANT_GPU void EachWarp(const Body& body) {
    body(static_cast<int>(threadIdx.x) / 32);
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
  // Copies `bytes` bytes, 0 or 16, to shared memory; the rest of the 16 bytes become zeros.
  KVANT_GPU static void CopyAhead(void* to, const void* from, int bytes) {
#if __CUDA_ARCH__ >= 800
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(bytes)
                 : "memory");
#else
    *static_cast<uint4*>(to) = bytes > 0 ? *static_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
#endif
  }
  KVANT_GPU static void Wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  }
  // The lanes of a warp have come here; what each wrote to memory is there for the others.
  KVANT_GPU static void WarpBarrier() { __syncwarp(); }

  // Loads through the caches; the address is a multiple of the size.
  KVANT_GPU static Words2 Load8(const std::byte* from) {
    const uint2 words = __ldg(reinterpret_cast<const uint2*>(from));
    return {{words.x, words.y}};
  }
  KVANT_GPU static Words4 Load16(const std::byte* from) {
    const uint4 words = __ldg(reinterpret_cast<const uint4*>(from));
    return {{words.x, words.y, words.z, words.w}};
  }
  KVANT_GPU static void Store8(float* to, float a, float b) {
    *reinterpret_cast<float2*>(to) = {a, b};
  }
  // The greatest number of each four lanes that follow each other, and of a warp.
  KVANT_GPU static void QuadMax(PerThread<float>& x) {
    x.value = fmaxf(x.value, __shfl_xor_sync(~0u, x.value, 1));
    x.value = fmaxf(x.value, __shfl_xor_sync(~0u, x.value, 2));
  }
  // The greatest of the numbers of a warp's lanes up to each lane.
  KVANT_GPU static void WarpPrefixMax(PerThread<float>& x) {
    for (int distance = 1; distance < 32; distance *= 2) {
      const float earlier = __shfl_up_sync(~0u, x.value, distance);
      if (static_cast<int>(threadIdx.x) % 32 >= distance) x.value = fmaxf(x.value, earlier);
    }
  }
  KVANT_GPU static void WarpMax(PerThread<float>& x) {
    for (int mask = 16; mask > 0; mask /= 2) {
      x.value = fmaxf(x.value, __shfl_xor_sync(~0u, x.value, mask));
    }
  }

  // b = two blocks of 16 x 8 halves, side by side, of a row-major matrix from (row, col) on; with 8
  // rows, of which the others are copies.
  KVANT_GPU static void LoadB(PerThread<uint32_t> (&b)[4], const Half* matrix, int stride, int row,
                              int col, int rows) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const unsigned address = static_cast<unsigned>(
        __cvta_generic_to_shared(matrix + (row + lane % rows) * stride + col + lane / 16 * 8));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0].value), "=r"(b[1].value), "=r"(b[2].value), "=r"(b[3].value)
                 : "r"(address));
  }
  // b = four blocks of 8 x 8 halves, one below the other, of the transpose of a row-major matrix
  // from (row, col) on: eight of its rows are columns of b.
  KVANT_GPU static void LoadTransposedB(PerThread<uint32_t> (&b)[4], const Half* matrix, int stride,
                                        int row, int col) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const unsigned address = static_cast<unsigned>(
        __cvta_generic_to_shared(matrix + (row + lane % 8) * stride + col + lane / 8 * 8));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b[0].value), "=r"(b[1].value), "=r"(b[2].value), "=r"(b[3].value)
                 : "r"(address));
  }
  // c += a b, where b is 16 x 8: a lane has the rows (2 q, 2 q + 1) and (2 q + 8, 2 q + 9) of
  // column lane / 4, where q = lane % 4.
  KVANT_GPU static void Mma(PerThread<float> (&c)[4], const PerThread<uint32_t> (&a)[4],
                            const PerThread<uint32_t>& b0, const PerThread<uint32_t>& b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0].value), "+f"(c[1].value), "+f"(c[2].value), "+f"(c[3].value)
        : "r"(a[0].value), "r"(a[1].value), "r"(a[2].value), "r"(a[3].value), "r"(b0.value),
          "r"(b1.value));
#else
    for (int part = 0; part < 2; ++part) {
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0].value), "+f"(c[1].value), "+f"(c[2].value), "+f"(c[3].value)
          : "r"(a[2 * part].value), "r"(a[2 * part + 1].value),
            "r"(part == 0 ? b0.value : b1.value));
    }
#endif
  }

 protected:
  // Waits until a barrier in shared memory has left the phase of this parity.
  KVANT_GPU static void Await(uint32_t barrier, int parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
#endif
  }
};

#else

template <class T>
struct PerThread {
  T values[kThreadsMax];
  T& operator[](int thread) { return values[thread]; }
  const T& operator[](int thread) const { return values[thread]; }
};

inline Half ToHalf(float value) { return F32ToF16(value); }
inline float ToFloat(Half half) {
  static const std::vector<float> floats = [] {
    std::vector<float> all(1 << 16);
    for (size_t i = 0; i < all.size(); ++i) all[i] = F16ToF32(static_cast<Half>(i));
    return all;
  }();
  return floats[half];
}
inline float Exp2(float x) { return std::exp2(x); }
inline float Tanh(float x) { return std::tanh(x); }
inline float Round(float x) { return std::nearbyint(x); }
inline float Greater(float a, float b) { return std::fmax(a, b); }
inline float Lesser(float a, float b) { return std::fmin(a, b); }
inline float AddExact(float a, float b) { return a + b; }
inline float MultiplyExact(float a, float b) { return a * b; }
inline float MultiplyAdd(float a, float b, float c) { return std::fma(a, b, c); }
inline float AsFloat(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t AsBits(float x) { return std::bit_cast<uint32_t>(x); }
inline float Infinity() { return INFINITY; }
inline float NotANumber() { return NAN; }
inline bool IsFinite(float x) { return std::isfinite(x); }
inline uint32_t Permute(uint32_t a, uint32_t b, uint32_t order) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t chosen = 0;
  for (int i = 0; i < 4; ++i) {
    chosen |= static_cast<uint32_t>(bytes >> (order >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return chosen;
}
inline HalfPair ToHalves(float first, float second) {
  return ToHalf(first) | static_cast<HalfPair>(ToHalf(second)) << 16;
}
inline HalfPair Multiply(HalfPair a, HalfPair b) {
  return ToHalves(ToFloat(static_cast<Half>(a)) * ToFloat(static_cast<Half>(b)),
                  ToFloat(static_cast<Half>(a >> 16)) * ToFloat(static_cast<Half>(b >> 16)));
}
inline HalfPair Subtract(HalfPair a, HalfPair b) {
  return ToHalves(ToFloat(static_cast<Half>(a)) - ToFloat(static_cast<Half>(b)),
                  ToFloat(static_cast<Half>(a >> 16)) - ToFloat(static_cast<Half>(b >> 16)));
}

// A thread block on the host: a step is a loop over the threads [first, last).
class HostBlock {
 public:
  int x, y, z;
  std::byte* shared;
  int first = 0;
  int last = kThreads;

  void SetThreads(int threads) { last = threads; }
  template <class Step>
  void Each(const Step& step) {
    for (int thread = first; thread < last; ++thread) step(thread);
  }
  template <class Body>
  void Warps(int warps, const Body& body) {
    const int all = last;
    last = std::min(all, first + 32 * warps);
    body();
    last = all;
  }
  template <class Body>
  void EachWarp(const Body& body) {
    const int begin = first;
    const int end = last;
    for (int thread = begin; thread < end; thread += 32) {
      first = thread;
      last = thread + 32;
      body(thread / 32);
    }
    first = begin;
    last = end;
  }
  void Barrier() {}
  static void Wait() {}
  static void WarpBarrier() {}
  static void CopyAhead(void* to, const void* from) { std::memcpy(to, from, 16); }
  static void CopyAhead(void* to, const void* from, int bytes) {
    if (bytes > 0) {
      std::memcpy(to, from, 16);
    } else {
      std::memset(to, 0, 16);
    }
  }
  static Words2 Load8(const std::byte* from) { return Load<Words2>(from); }
  static Words4 Load16(const std::byte* from) { return Load<Words4>(from); }
  static void Store8(float* to, float a, float b) {
    to[0] = a;
    to[1] = b;
  }

  void QuadMax(PerThread<float>& numbers) const { Reduce<4>(numbers, Greater); }
  void WarpPrefixMax(PerThread<float>& numbers) const {
    for (int i = first; i < last; ++i) {
      if (i % 32 > 0) numbers[i] = Greater(numbers[i], numbers[i - 1]);
    }
  }
  void WarpMax(PerThread<float>& numbers) const { Reduce<32>(numbers, Greater); }

  void LoadB(PerThread<uint32_t> (&b)[4], const Half* matrix, int stride, int row, int col,
             int rows) const {
    for (int thread = first; thread < last; ++thread) {
      const int lane = thread % 32;
      for (int part = 0; part < 4; ++part) {
        const Half* pair = matrix + (row + (lane % 4 * 2 + part % 2 * 8) % rows) * stride + col +
                           lane / 4 + part / 2 * 8;
        b[part][thread] = Pair(pair[0], pair[stride]);
      }
    }
  }
  void LoadTransposedB(PerThread<uint32_t> (&b)[4], const Half* matrix, int stride, int row,
                       int col) const {
    for (int thread = first; thread < last; ++thread) {
      for (int part = 0; part < 4; ++part) {
        const Half* pair =
            matrix + (row + thread % 32 / 4) * stride + col + part * 8 + thread % 4 * 2;
        b[part][thread] = Pair(pair[0], pair[1]);
      }
    }
  }
  void Mma(PerThread<float> (&c)[4], const PerThread<uint32_t> (&a)[4],
           const PerThread<uint32_t>& b0, const PerThread<uint32_t>& b1) const {
    for (int warp = first; warp < last; warp += 32) {
      float left[16][16];
      float right[16][8];
      float sums[16][8];
      for (int lane = 0; lane < 32; ++lane) {
        const int row = lane / 4;
        const int pair = lane % 4 * 2;
        for (int part = 0; part < 4; ++part) {
          Unpack(a[part][warp + lane], left[row + part % 2 * 8] + pair + part / 2 * 8, 1);
        }
        Unpack(b0[warp + lane], right[pair] + row, 8);
        Unpack(b1[warp + lane], right[pair + 8] + row, 8);
        for (int i = 0; i < 4; ++i) sums[row + i / 2 * 8][pair + i % 2] = c[i][warp + lane];
      }
      float zero = 0.0f;  // or not a number
      for (const auto& row : right) {
        for (const float number : row) zero += 0.0f * number;
      }
      for (int row = 0; row < 16; ++row) {
        for (int k = 0; k < 16; ++k) {
          if (left[row][k] == 0.0f && zero == 0.0f) continue;  // half of them in small tests
          for (int n = 0; n < 8; ++n) sums[row][n] += left[row][k] * right[k][n];
        }
      }
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
          c[i][warp + lane] = sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
        }
      }
    }
  }

 protected:
  template <class Words>
  static Words Load(const std::byte* from) {
    Words words;
    std::memcpy(&words, from, sizeof(words));
    return words;
  }

 private:
  // Writes the two floats of a pair, `stride` apart.
  static void Unpack(HalfPair pair, float* to, int stride) {
    to[0] = ToFloat(static_cast<Half>(pair));
    to[stride] = ToFloat(static_cast<Half>(pair >> 16));
  }
  static uint32_t Pair(Half first, Half second) {
    return first | static_cast<uint32_t>(second) << 16;
  }
  template <int kLanes, class Combine>
  void Reduce(PerThread<float>& numbers, const Combine& combine) const {
    for (int group = first; group < last; group += kLanes) {
      float all = numbers[group];
      for (int i = 1; i < kLanes; ++i) all = combine(all, numbers[group + i]);
      for (int i = 0; i < kLanes; ++i) numbers[group + i] = all;
    }
  }
};

#endif

}  // namespace kvant::cuda
