// The kernel table for AVX2: the generic kernels over this folder's simd.inl, and the matrix
// kernels of matmul.h.
#include "cpu/avx2/isa.h"
#include "cpu/kernels/table.h"

#if defined(__x86_64__)

#include <array>
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
#include "cpu/kv_format_list.h"
#include "cpu/portable_series.h"

#include "cpu/avx2/begin.inl"

namespace kvant::cpu::avx2 {
#include "cpu/avx2/simd.inl"
namespace {
#include "cpu/generic/kernels.inl"
}  // namespace
}  // namespace kvant::cpu::avx2

#include "cpu/avx2/end.inl"

namespace kvant::cpu::avx2 {

constexpr const char* kIsaName = "avx2";
#include "cpu/generic/kernel_table.inl"

}  // namespace kvant::cpu::avx2

#else

namespace kvant::cpu::avx2 {
const KernelTable* Kernels() { return nullptr; }
}  // namespace kvant::cpu::avx2

#endif
