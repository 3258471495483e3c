// The instruction sets that kvant has kernels for, best first. One row each; the name is that of
// the folder, the namespace and the value of KVANT_ISA.
//
// A folder's isa.h says which processor features its code needs, and its Kernels() gives the table,
// or null where the folder is not compiled for this architecture. Private to cpu/.
#pragma once

#include "cpu/avx2/isa.h"
#include "cpu/avx512vnni/isa.h"
#include "cpu/scalar/isa.h"

namespace kvant::cpu {

struct Isa {
  const char* name;
  std::span<const CpuFeature> required;
  const KernelTable* (*kernels)();
};

inline constexpr Isa kIsaList[] = {
    {"avx512vnni", avx512vnni::kRequired, avx512vnni::Kernels},
    {"avx2", avx2::kRequired, avx2::Kernels},
    {"scalar", {}, scalar::Kernels},
};

}  // namespace kvant::cpu
