// The table of matrix kernels for NEON.
#include "cpu/neon/matmul.h"

#if defined(__aarch64__)

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/cpu_features.h"
#include "cpu/float_gemm.h"
#include "cpu/intrinsics.h"
#include "cpu/matmul_table.h"
#include "quant/format_list.h"

#include "cpu/neon/begin.inl"

namespace kvant::cpu::neon {
namespace {

#include "cpu/neon/matmul.inl"

}  // namespace

std::vector<MatMulKernel> MatMulKernels() {
  return BuildMatMulTable({"neon", kSpecial, RunRare<UnpackGeneric<false>>,
                           RunRare<UnpackGeneric<true>>, Scratch::Bytes, FloatScratchBytes});
}

}  // namespace kvant::cpu::neon

#include "cpu/neon/end.inl"

#endif  // defined(__aarch64__)
