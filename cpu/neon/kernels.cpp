// The kernel table for NEON: the generic kernels over this folder's simd.inl, and the matrix
// kernels of matmul.h.
#include "cpu/kernels/table.h"
#include "cpu/neon/isa.h"

#if defined(__aarch64__)

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/aligned_buffer.h"
#include "cpu/intrinsics.h"
#include "cpu/kv_format_list.h"
#include "cpu/neon/codec.h"
#include "cpu/neon/matmul.h"
#include "cpu/neon/peaks.h"
#include "cpu/portable_series.h"

#include "cpu/neon/begin.inl"

namespace kvant::cpu::neon {
#include "cpu/neon/simd.inl"
namespace {
#include "cpu/generic/kernels.inl"
}  // namespace
}  // namespace kvant::cpu::neon

#include "cpu/neon/end.inl"

namespace kvant::cpu::neon {

constexpr const char* kIsaName = "neon";
#include "cpu/generic/kernel_table.inl"

}  // namespace kvant::cpu::neon

#else

namespace kvant::cpu::neon {
const KernelTable* Kernels() { return nullptr; }
}  // namespace kvant::cpu::neon

#endif
