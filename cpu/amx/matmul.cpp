// The table of AMX matrix kernels.
#include "cpu/amx/matmul.h"

#if defined(__x86_64__)

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "cpu/avx512vbmi/isa.h"
#include "cpu/cpu_features.h"
#include "cpu/float_gemm.h"
#include "cpu/intrinsics.h"
#include "cpu/kernels/table.h"
#include "cpu/matmul_table.h"
#include "quant/format_list.h"

#include "cpu/amx/begin.inl"

namespace kvant::cpu::amx {
namespace {

constexpr const char* kIsaName = "amx";

// clang-format off
#include "cpu/amx/tile.inl"
#include "cpu/amx/matmul.inl"
// clang-format on

}  // namespace

std::vector<MatMulKernel> MatMulKernels() { return BuildKernels(); }

}  // namespace kvant::cpu::amx

#include "cpu/avx512vnni/end.inl"

#endif  // defined(__x86_64__)
