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
// Each needs some of those before it.
// clang-format off
#include "cpu/generic/math.inl"
#include "cpu/generic/kv_store.inl"
#include "cpu/generic/attention_tile.inl"
#include "cpu/generic/attention_merge.inl"
#include "cpu/generic/attention_q8.inl"
#include "cpu/generic/attention.inl"
#include "cpu/generic/rows.inl"
// clang-format on
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
      .attention_merge = AttentionMerge,
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
