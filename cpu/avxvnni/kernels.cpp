// The kernel table for AVX-VNNI: that of AVX2 with this folder's matrix kernels.
#include "cpu/avxvnni/isa.h"
#include "cpu/kernels/table.h"

#if defined(__x86_64__)

#include "cpu/avx2/isa.h"
#include "cpu/avxvnni/matmul.h"
#include "cpu/avxvnni/peaks.h"

namespace kvant::cpu::avxvnni {
namespace {

KernelTable BuildTable() {
  KernelTable table = *avx2::Kernels();
  table.isa = "avxvnni";
  table.matmul = MatMulKernels();
  table.peaks = Peaks();
  return table;
}

}  // namespace

const KernelTable* Kernels() {
  static const KernelTable table = BuildTable();
  return &table;
}

}  // namespace kvant::cpu::avxvnni

#else

namespace kvant::cpu::avxvnni {
const KernelTable* Kernels() { return nullptr; }
}  // namespace kvant::cpu::avxvnni

#endif
