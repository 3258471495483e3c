#include "cpu/avx512vnni/selective_scan.h"

#if defined(__x86_64__)

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/intrinsics.h"

#include "cpu/avx512vnni/begin.inl"

namespace kvant::cpu::avx512vnni {
#include "cpu/avx512vnni/simd.inl"
namespace {
#include "cpu/generic/math.inl"
#include "cpu/generic/selective_scan.inl"
}  // namespace
}  // namespace kvant::cpu::avx512vnni

#include "cpu/avx512vnni/end.inl"

namespace kvant::cpu::avx512vnni {
const SelectiveScanFunction kSelectiveScan = SelectiveScan;
}  // namespace kvant::cpu::avx512vnni

#else

namespace kvant::cpu::avx512vnni {
const SelectiveScanFunction kSelectiveScan = nullptr;
}  // namespace kvant::cpu::avx512vnni

#endif
