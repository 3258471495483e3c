// The CPU features that the kernels of this folder need: AVX-512 F, BW, DQ, VL and VNNI, that is
// Intel since Cascade Lake (2019) and AMD since Zen 4 (2022).
#pragma once

#include <span>

#include "cpu/cpu_features.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::cpu::avx512vnni {

// The features that begin.inl compiles for.
inline constexpr CpuFeature kRequired[] = {
    CpuFeature::kAvx2,     CpuFeature::kFma,      CpuFeature::kF16c,     CpuFeature::kBmi1,
    CpuFeature::kBmi2,     CpuFeature::kLzcnt,    CpuFeature::kPopcnt,   CpuFeature::kAvx512f,
    CpuFeature::kAvx512bw, CpuFeature::kAvx512dq, CpuFeature::kAvx512vl, CpuFeature::kAvx512vnni,
};

// Whether this build has code for the folder's architecture.
#if defined(__x86_64__)
inline constexpr bool kCompiled = true;
#else
inline constexpr bool kCompiled = false;
#endif

// The table; null where !kCompiled. Runs code of the folder: only for a CPU that has the features.
const KernelTable* Kernels();

}  // namespace kvant::cpu::avx512vnni
