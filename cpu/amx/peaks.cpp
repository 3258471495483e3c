// Peak loops in AMX.
#include "cpu/amx/peaks.h"

#if defined(__x86_64__)

#include <algorithm>
#include <iterator>
#include <utility>

#include "cpu/avx512vnni/peaks.h"

namespace kvant::cpu::amx {
namespace {

// clang-format off
#include "cpu/amx/tile.inl"
#include "cpu/amx/peaks.inl"
// clang-format on

}  // namespace

const PeakLoops* Peaks() {
  static const PeakLoops kPeaks = BuildPeaks();
  return &kPeaks;
}

}  // namespace kvant::cpu::amx

#endif  // defined(__x86_64__)
