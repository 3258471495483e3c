#include "cpu/avx2/selective_scan.h"

#if defined(__x86_64__)

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/intrinsics.h"

#include "cpu/avx2/begin.inl"

namespace kvant::cpu::avx2 {
#include "cpu/avx2/simd.inl"
namespace {
#include "cpu/generic/math.inl"
#include "cpu/generic/selective_scan.inl"
}  // namespace
}  // namespace kvant::cpu::avx2

#include "cpu/avx2/end.inl"

namespace kvant::cpu::avx2 {
const SelectiveScanFunction kSelectiveScan = SelectiveScan;
}  // namespace kvant::cpu::avx2

#else

namespace kvant::cpu::avx2 {
const SelectiveScanFunction kSelectiveScan = nullptr;
}  // namespace kvant::cpu::avx2

#endif
