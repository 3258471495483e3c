// The CPU features that the kernels of this folder need: AVX2 and AVX-VNNI, that is Intel's cores
// for laptops and desktops since Alder Lake (2021) and AMD since Zen 5 (2024). The folder has
// matrix kernels of its own. All other kernels come from cpu/avx2.
#pragma once

#include <span>

#include "cpu/cpu_features.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::cpu::avxvnni {

// The features that begin.inl compiles for.
inline constexpr CpuFeature kRequired[] = {
    CpuFeature::kAvx2, CpuFeature::kFma,   CpuFeature::kF16c,   CpuFeature::kBmi1,
    CpuFeature::kBmi2, CpuFeature::kLzcnt, CpuFeature::kPopcnt, CpuFeature::kAvxVnni,
};

// Whether this build has code for the folder's architecture.
#if defined(__x86_64__)
inline constexpr bool kCompiled = true;
#else
inline constexpr bool kCompiled = false;
#endif

// The table; null where !kCompiled. Runs code of the folder: only for a CPU that has the features.
const KernelTable* Kernels();

}  // namespace kvant::cpu::avxvnni
