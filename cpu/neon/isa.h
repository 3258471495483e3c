// The CPU features that the kernels of this folder need: NEON with dot products of bytes, that is
// Arm cores since Cortex-A76 and Neoverse N1 (2018) and Apple's since M1.
#pragma once

#include <span>

#include "cpu/cpu_features.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::cpu::neon {

// The features that begin.inl compiles for, beyond the first 64-bit Arm, which has NEON and halves.
inline constexpr CpuFeature kRequired[] = {
    CpuFeature::kAsimdDp,
    CpuFeature::kAsimdRdm,
    CpuFeature::kAtomics,
    CpuFeature::kCrc32,
};

// Whether this build has code for the folder's architecture.
#if defined(__aarch64__)
inline constexpr bool kCompiled = true;
#else
inline constexpr bool kCompiled = false;
#endif

// The table; null where !kCompiled. Runs code of the folder: only for a CPU that has the features.
const KernelTable* Kernels();

}  // namespace kvant::cpu::neon
