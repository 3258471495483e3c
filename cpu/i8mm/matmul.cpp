// The table of matrix kernels for NEON with products of byte matrices.
#include "cpu/i8mm/matmul.h"

#if defined(__aarch64__)

#include <algorithm>
#include <cstring>

#include "cpu/cpu_features.h"
#include "cpu/float_gemm.h"
#include "cpu/intrinsics.h"
#include "cpu/matmul_table.h"
#include "quant/format_list.h"

#include "cpu/i8mm/begin.inl"

namespace kvant::cpu::i8mm {
namespace {

#include "cpu/i8mm/matmul.inl"

}  // namespace

std::vector<MatMulKernel> MatMulKernels() {
  return BuildMatMulTable({"i8mm", kSpecial, RunRare<UnpackGeneric<false>>,
                           RunRare<UnpackGeneric<true>>, Scratch::Bytes, FloatScratchBytes});
}

}  // namespace kvant::cpu::i8mm

#include "cpu/i8mm/end.inl"

#endif  // defined(__aarch64__)
