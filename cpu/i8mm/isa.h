// The CPU features that the kernels of this folder need: cpu/neon's features and products of
// matrices of bytes, that is Arm cores since Cortex-A510, Neoverse V1 and N2 (2021), and Apple's
// since M2.
#pragma once

#include <span>

#include "cpu/cpu_features.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::cpu::i8mm {

// cpu/neon's, and what begin.inl adds.
inline constexpr CpuFeature kRequired[] = {
    CpuFeature::kAsimdDp, CpuFeature::kAsimdRdm, CpuFeature::kAtomics,
    CpuFeature::kCrc32,   CpuFeature::kI8mm,
};

// Whether this build has code for the folder's architecture.
#if defined(__aarch64__)
inline constexpr bool kCompiled = true;
#else
inline constexpr bool kCompiled = false;
#endif

// The table; null where !kCompiled. Runs code of the folder: only for a CPU that has the features.
const KernelTable* Kernels();

}  // namespace kvant::cpu::i8mm
