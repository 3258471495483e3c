// The table of AVX2 matrix kernels: the shared drivers of cpu/generic with this folder's
// blocks, unpackers and vectors. A format without a line in the table below goes through
// unpack_generic.h.
#include "cpu/avx2/matmul.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cstring>

#include "cpu/float_gemm.h"
#include "cpu/intrinsics.h"
#include "cpu/matmul_table.h"
#include "quant/format_list.h"

#include "cpu/avx2/begin.h"

namespace kvant::cpu::avx2 {
namespace {

constexpr const char* kIsaName = "avx2";

// clang-format off
#include "cpu/avx2/byte_products.h"
#include "cpu/avx2/int8_blocks.h"
#include "cpu/generic/matmul_int8.inl"
#include "cpu/generic/panel_operands.inl"
#include "cpu/avx2/panel_tile.h"
#include "cpu/avx2/int8_panel.h"
#include "cpu/generic/matmul_panel.inl"
#include "cpu/avx2/matmul_formats.h"
// clang-format on

}  // namespace

std::vector<MatMulKernel> MatMulKernels() { return BuildKernels(); }

}  // namespace kvant::cpu::avx2

#include "cpu/avx2/end.h"

#endif  // defined(__x86_64__)
