// The table of AVX2 matrix kernels.
#include "cpu/avx2/matmul.h"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "cpu/cpu_features.h"
#include "cpu/float_gemm.h"
#include "cpu/intrinsics.h"
#include "cpu/matmul_table.h"
#include "quant/format_list.h"

#include "cpu/avx2/begin.inl"

namespace kvant::cpu::avx2 {
namespace {

constexpr const char* kIsaName = "avx2";

#include "cpu/avx2/matmul.inl"

}  // namespace

std::vector<MatMulKernel> MatMulKernels() { return BuildKernels(); }

}  // namespace kvant::cpu::avx2

#include "cpu/avx2/end.inl"

#endif  // defined(__x86_64__)
