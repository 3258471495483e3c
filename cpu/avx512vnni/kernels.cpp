// The kernel table for AVX-512 with VNNI: the generic kernels over this folder's simd.inl, and the
// matrix kernels of matmul.h.
#include "cpu/avx512vnni/isa.h"
#include "cpu/kernels/table.h"

#if defined(__x86_64__)

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/aligned_buffer.h"
#include "cpu/avx512vnni/codec.h"
#include "cpu/avx512vnni/matmul.h"
#include "cpu/avx512vnni/peaks.h"
#include "cpu/intrinsics.h"
#include "cpu/kv_format_list.h"
#include "cpu/portable_series.h"

#include "cpu/avx512vnni/begin.inl"

namespace kvant::cpu::avx512vnni {
#include "cpu/avx512vnni/simd.inl"
namespace {
#include "cpu/generic/kernels.inl"
}  // namespace
}  // namespace kvant::cpu::avx512vnni

#include "cpu/avx512vnni/end.inl"

namespace kvant::cpu::avx512vnni {

constexpr const char* kIsaName = "avx512vnni";
#include "cpu/generic/kernel_table.inl"

}  // namespace kvant::cpu::avx512vnni

#else

namespace kvant::cpu::avx512vnni {
const KernelTable* Kernels() { return nullptr; }
}  // namespace kvant::cpu::avx512vnni

#endif
