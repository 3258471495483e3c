// The kernel table for NEON with products of byte matrices: cpu/neon's with other matrix products.
#include "cpu/i8mm/isa.h"
#include "cpu/kernels/table.h"

#if defined(__aarch64__)

#include "cpu/i8mm/matmul.h"
#include "cpu/i8mm/peaks.h"
#include "cpu/neon/isa.h"

namespace kvant::cpu::i8mm {
namespace {

KernelTable MakeTable() {
  KernelTable table = *neon::Kernels();
  table.isa = "i8mm";
  table.matmul = MatMulKernels();
  table.peaks = Peaks();
  return table;
}

}  // namespace

const KernelTable* Kernels() {
  static const KernelTable table = MakeTable();
  return &table;
}

}  // namespace kvant::cpu::i8mm

#else

namespace kvant::cpu::i8mm {
const KernelTable* Kernels() { return nullptr; }
}  // namespace kvant::cpu::i8mm

#endif
