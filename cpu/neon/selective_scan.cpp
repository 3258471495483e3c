#include "cpu/neon/selective_scan.h"

#if defined(__aarch64__)

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/intrinsics.h"

#include "cpu/neon/begin.inl"

namespace kvant::cpu::neon {
#include "cpu/neon/simd.inl"
namespace {
#include "cpu/generic/math.inl"
#include "cpu/generic/selective_scan.inl"
}  // namespace
}  // namespace kvant::cpu::neon

#include "cpu/neon/end.inl"

namespace kvant::cpu::neon {
const SelectiveScanFunction kSelectiveScan = SelectiveScan;
}  // namespace kvant::cpu::neon

#else

namespace kvant::cpu::neon {
const SelectiveScanFunction kSelectiveScan = nullptr;
}  // namespace kvant::cpu::neon

#endif
