// The kernel table for AVX-512 with VBMI: that of cpu/avx512vnni with this folder's matrix kernels.
#include "cpu/avx512vbmi/isa.h"
#include "cpu/kernels/table.h"

#if defined(__x86_64__)

#include "cpu/avx512vbmi/matmul.h"
#include "cpu/avx512vnni/isa.h"

namespace kvant::cpu::avx512vbmi {
namespace {

KernelTable BuildTable() {
  KernelTable table = *avx512vnni::Kernels();
  table.isa = "avx512vbmi";
  table.matmul = MatMulKernels();
  return table;
}

}  // namespace

const KernelTable* Kernels() {
  static const KernelTable table = BuildTable();
  return &table;
}

}  // namespace kvant::cpu::avx512vbmi

#else

namespace kvant::cpu::avx512vbmi {
const KernelTable* Kernels() { return nullptr; }
}  // namespace kvant::cpu::avx512vbmi

#endif
