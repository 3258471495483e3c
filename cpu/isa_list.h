// The instruction sets that kvant has kernels for, best first. One row each; the name is that of
// the folder, the namespace and the value of KVANT_ISA.
//
// A folder's isa.h says whether it is compiled for this architecture and which processor features
// its code needs; its Kernels() gives the table and may be called only where both hold; null says
// that the operating system refuses. Private to cpu/.
#pragma once

#include "cpu/amx/isa.h"
#include "cpu/avx2/isa.h"
#include "cpu/avx512vbmi/isa.h"
#include "cpu/avx512vnni/isa.h"
#include "cpu/avxvnni/isa.h"
#include "cpu/i8mm/isa.h"
#include "cpu/neon/isa.h"
#include "cpu/scalar/isa.h"

namespace kvant::cpu {

struct Isa {
  const char* name;
  bool compiled;
  std::span<const CpuFeature> required;
  const KernelTable* (*kernels)();
};

inline constexpr Isa kIsaList[] = {
    {"amx", amx::kCompiled, amx::kRequired, amx::Kernels},
    {"avx512vbmi", avx512vbmi::kCompiled, avx512vbmi::kRequired, avx512vbmi::Kernels},
    {"avx512vnni", avx512vnni::kCompiled, avx512vnni::kRequired, avx512vnni::Kernels},
    {"avxvnni", avxvnni::kCompiled, avxvnni::kRequired, avxvnni::Kernels},
    {"avx2", avx2::kCompiled, avx2::kRequired, avx2::Kernels},
    {"i8mm", i8mm::kCompiled, i8mm::kRequired, i8mm::Kernels},
    {"neon", neon::kCompiled, neon::kRequired, neon::Kernels},
    {"scalar", true, {}, scalar::Kernels},
};

}  // namespace kvant::cpu
