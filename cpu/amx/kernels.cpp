// The kernel table for AMX: that of AVX-512 VBMI with this folder's matrix kernels, attention
// and peak loops.
#include "cpu/amx/isa.h"
#include "cpu/kernels/table.h"

#if defined(__x86_64__) && defined(__linux__)

#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/amx/attention.h"
#include "cpu/amx/matmul.h"
#include "cpu/amx/peaks.h"
#include "cpu/avx512vbmi/isa.h"
#include "cpu/intrinsics.h"

#include "cpu/amx/begin.inl"

namespace kvant::cpu::amx {
namespace {

#include "cpu/amx/round_activations.inl"

// Tiles are large, so Linux saves them only for processes that have asked: arch_prctl with the
// number of their state component (Documentation/arch/x86/xstate.rst). It holds for all threads.
bool PermitTiles() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

KernelTable BuildTable() {
  KernelTable table = *avx512vbmi::Kernels();
  table.isa = "amx";
  table.matmul = MatMulKernels();
  table.attention_scratch_bytes = AttentionScratchBytes;
  table.attention = Attention;
  table.many_form = ActivationForm::kBf16;
  table.quantize_many = RoundActivations;
  table.peaks = Peaks();
  return table;
}

}  // namespace
}  // namespace kvant::cpu::amx

#include "cpu/avx512vnni/end.inl"

namespace kvant::cpu::amx {

const KernelTable* Kernels() {
  if (!PermitTiles()) return nullptr;
  static const KernelTable table = BuildTable();
  return &table;
}

}  // namespace kvant::cpu::amx

#else

namespace kvant::cpu::amx {
const KernelTable* Kernels() { return nullptr; }
}  // namespace kvant::cpu::amx

#endif
