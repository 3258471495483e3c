// The table of matrix kernels for NEON with products of byte matrices: those of cpu/neon with this
// folder's products.
#include "cpu/i8mm/matmul.h"

#if defined(__aarch64__)

#include <algorithm>
#include <cstring>

#include "cpu/float_gemm.h"
#include "cpu/intrinsics.h"
#include "cpu/matmul_table.h"
#include "quant/format_list.h"

#include "cpu/i8mm/begin.h"

namespace kvant::cpu::i8mm {
namespace {

// clang-format off
#include "cpu/neon/int8_blocks.h"
#include "cpu/i8mm/int8_products.h"
#include "cpu/generic/matmul_int8.inl"
#include "cpu/neon/unpack_pieces.h"
#include "cpu/neon/unpack_generic.h"
#include "cpu/neon/unpack_q4_0.h"
#include "cpu/neon/unpack_q2_k.h"
#include "cpu/neon/unpack_q5_0.h"
#include "cpu/neon/unpack_iq4.h"
#include "cpu/neon/unpack_grids.h"
#include "cpu/neon/unpack_q4_k.h"
#include "cpu/neon/unpack_q6_k.h"
#include "cpu/neon/unpack_q8_0.h"
#include "cpu/neon/float_elements.h"
#include "cpu/generic/matmul_float.inl"
#include "cpu/generic/matmul_float_panel.inl"
#include "cpu/neon/matmul_entries.h"
// clang-format on

}  // namespace

std::vector<MatMulKernel> MatMulKernels() {
  return BuildMatMulTable({"i8mm", kSpecial, RunInt8<UnpackGeneric<false>>,
                           RunInt8<UnpackGeneric<true>>, Scratch::Bytes, FloatScratchBytes});
}

}  // namespace kvant::cpu::i8mm

#include "cpu/i8mm/end.h"

#endif  // defined(__aarch64__)
