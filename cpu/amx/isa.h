// The CPU features that the kernels of this folder need: AMX with products of bfloat16 numbers and
// of bytes, that is Intel's servers since Sapphire Rapids (2023), which have all of AVX-512 VBMI.
// The folder has kernels of its own for matrix products with 64 and more tokens, for their
// attention and for attention over q8 keys and values. All other kernels come from cpu/avx512vbmi.
#pragma once

#include <span>

#include "cpu/cpu_features.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::cpu::amx {

// The features that begin.inl compiles for, and those of tiles.
inline constexpr CpuFeature kRequired[] = {
    CpuFeature::kAvx2,       CpuFeature::kFma,        CpuFeature::kF16c,
    CpuFeature::kBmi1,       CpuFeature::kBmi2,       CpuFeature::kLzcnt,
    CpuFeature::kPopcnt,     CpuFeature::kAvx512f,    CpuFeature::kAvx512bw,
    CpuFeature::kAvx512dq,   CpuFeature::kAvx512vl,   CpuFeature::kAvx512vnni,
    CpuFeature::kAvx512vbmi, CpuFeature::kAvx512bf16, CpuFeature::kAmxTile,
    CpuFeature::kAmxBf16,    CpuFeature::kAmxInt8,
};

// Whether this build has code for the folder's architecture: permission is asked in Linux's way.
#if defined(__x86_64__) && defined(__linux__)
inline constexpr bool kCompiled = true;
#else
inline constexpr bool kCompiled = false;
#endif

// The table; null where !kCompiled and where Linux does not permit this process the use of tiles,
// which this asks for. Runs code of the folder: only for a CPU that has the features.
const KernelTable* Kernels();

}  // namespace kvant::cpu::amx
