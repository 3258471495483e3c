// The kernel table for NEON: the generic kernels over this folder's simd.h, and the matrix
// kernels of matmul.h.
#include "cpu/neon/isa.h"

#if defined(__aarch64__)

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/aligned_buffer.h"
#include "cpu/intrinsics.h"
#include "cpu/neon/codec.h"
#include "cpu/neon/matmul.h"
#include "cpu/neon/peaks.h"

#include "cpu/neon/begin.h"

namespace kvant::cpu::neon {
#include "cpu/neon/simd.h"
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
}  // namespace kvant::cpu::neon

#include "cpu/neon/end.h"

namespace kvant::cpu::neon {

const KernelTable* Kernels() {
  static const KernelTable table = {
      .isa = "neon",
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

}  // namespace kvant::cpu::neon

#else

namespace kvant::cpu::neon {
const KernelTable* Kernels() { return nullptr; }
}  // namespace kvant::cpu::neon

#endif
