// The table of AVX-512 VNNI matrix kernels.
#include "cpu/avx512vnni/matmul.h"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "cpu/avx2/matmul.h"
#include "cpu/cpu_features.h"
#include "cpu/float_gemm.h"
#include "cpu/intrinsics.h"
#include "cpu/matmul_table.h"
#include "quant/format_list.h"

#include "cpu/avx512vnni/begin.inl"

namespace kvant::cpu::avx512vnni {
namespace {

#include "cpu/avx512vnni/matmul.inl"

}  // namespace

std::vector<MatMulKernel> MatMulKernels() {
  return WithKernelsOf(avx2::MatMulKernels(),
                       BuildMatMulTable({"avx512vnni", kSpecial, RunRare<UnpackGeneric<false, 16>>,
                                         RunRare<UnpackGeneric<true, 16>>, ScratchBytesWithStrips,
                                         FloatScratchBytes, "int8", true}));
}

}  // namespace kvant::cpu::avx512vnni

#include "cpu/avx512vnni/end.inl"

#endif  // defined(__x86_64__)
