// The instruction sets that this build has, and the choice of one at run time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvant::cpu {

struct CpuFeatures;
struct Isa;
struct KernelTable;

// One row of cpu/isa_list.h as seen on this machine.
struct IsaReport {
  const char* name;
  bool compiled;
  bool supported;
  std::string reason;  // why it was refused: "CPU lacks avx512_vnni"
};

// The report of a row, and the row's kernels; null where the machine does not support them.
struct IsaAnswer {
  IsaReport report;
  const KernelTable* kernels;
};
IsaAnswer Ask(const Isa& isa, const CpuFeatures& features);

// All instruction sets, best first.
std::vector<IsaReport> ReportIsas();

// The best supported instruction set, or the named one ("scalar", "avx2", "avx512vnni"; "" = best).
// kInvalid for an unknown name, kNotSupported for one that this CPU or build lacks.
Result<const KernelTable*> ChooseKernels(std::string_view name);

// Chooses the instruction set that the environment variable KVANT_ISA names, with the errors of
// ChooseKernels.
Result<const KernelTable*> ChooseKernelsFromEnvironment();

}  // namespace kvant::cpu
