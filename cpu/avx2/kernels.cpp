// The kernel table for AVX2: the generic kernels over this folder's simd.h, and the matrix
// kernels of matmul.h.
#include "cpu/avx2/isa.h"

#if defined(__x86_64__)

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/aligned_buffer.h"
#include "cpu/avx2/codec.h"
#include "cpu/avx2/matmul.h"
#include "cpu/avx2/peaks.h"
#include "cpu/intrinsics.h"

#include "cpu/avx2/begin.h"

namespace kvant::cpu::avx2 {
#include "cpu/avx2/simd.h"
namespace {
#include "cpu/generic/math.inl"
// The rest needs math.inl; attention.inl needs its tiles, and these the quantizer of the cache.
#include "cpu/generic/kv_store.inl"
// clang-format keeps this order across comments only.
#include "cpu/generic/attention_tile.inl"
// And here.
#include "cpu/generic/attention_q8.inl"
#include "cpu/generic/attention.inl"
#include "cpu/generic/rows.inl"
}  // namespace
}  // namespace kvant::cpu::avx2

#include "cpu/avx2/end.h"

namespace kvant::cpu::avx2 {

const KernelTable* Kernels() {
  static const KernelTable table = {
      .isa = "avx2",
      .matmul = MatMulKernels(),
      .encode = EncodeFunctions(),
      .decode = DecodeFunctions(),
      .quantize = QuantizeActivations,
      .rms_norm = RmsNorm,
      .add = AddRows,
      .silu_multiply = SiluMultiply,
      .gelu_multiply = GeluMultiply,
      .rope = Rope,
      .rotate = Rotate,
      .store_key = StoreKey,
      .store_value = StoreValue,
      .attention_scratch_bytes = AttentionScratchBytes,
      .attention = Attention,
      .peaks = Peaks(),
  };
  return &table;
}

}  // namespace kvant::cpu::avx2

#else

namespace kvant::cpu::avx2 {
const KernelTable* Kernels() { return nullptr; }
}  // namespace kvant::cpu::avx2

#endif
