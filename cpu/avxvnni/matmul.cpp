// The table of AVX-VNNI matrix kernels.
#include "cpu/avxvnni/matmul.h"

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

#include "cpu/avxvnni/begin.inl"

namespace kvant::cpu::avxvnni {
namespace {

constexpr const char* kIsaName = "avxvnni";

// clang-format off
#include "cpu/avxvnni/vpdpbusd.inl"
#include "cpu/avxvnni/matmul.inl"
// clang-format on

}  // namespace

std::vector<MatMulKernel> MatMulKernels() { return BuildKernels(); }

}  // namespace kvant::cpu::avxvnni

#include "cpu/avxvnni/end.inl"

#endif  // defined(__x86_64__)
