#include "cpu/kv_kernels.h"

#include "cpu/scalar/isa.h"

namespace kvant::cpu {

const KernelTable& KernelsFor(const KernelTable& kernels, KvType k_type, KvType v_type) {
  return KvHasVectorKernels(k_type) && KvHasVectorKernels(v_type) ? kernels : *scalar::Kernels();
}

}  // namespace kvant::cpu
