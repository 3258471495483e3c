// The table of AVX-512 VNNI matrix kernels: the shared drivers of cpu/generic with this folder's
// blocks, unpackers and vectors. A format without a line in the table below goes through the kernel
// of AVX2, or, where that has no unpacker either, through unpack_generic.h.
#include "cpu/avx512vnni/matmul.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cstring>

#include "cpu/avx2/matmul.h"
#include "cpu/float_gemm.h"
#include "cpu/intrinsics.h"
#include "cpu/matmul_table.h"
#include "quant/format_list.h"

#include "cpu/avx512vnni/begin.h"

namespace kvant::cpu::avx512vnni {
namespace {

// clang-format off
#include "cpu/avx512vnni/int8_blocks.h"
#include "cpu/generic/matmul_int8.inl"
#include "cpu/generic/panel_operands.inl"
#include "cpu/avx512vnni/panel_layout.h"
#include "cpu/avx512vnni/int8_panel.h"
#include "cpu/generic/matmul_panel.inl"
#include "cpu/avx512vnni/unpack_pieces.h"
#include "cpu/avx2/packed_scales.h"
#include "cpu/avx512vnni/unpack_generic.h"
#include "cpu/avx512vnni/unpack_q4_0.h"
#include "cpu/avx512vnni/unpack_iq4.h"
#include "cpu/avx512vnni/unpack_q2_k.h"
#include "cpu/avx512vnni/unpack_q4_k.h"
#include "cpu/avx512vnni/unpack_q5_0.h"
#include "cpu/avx512vnni/unpack_q6_k.h"
#include "cpu/avx512vnni/unpack_q8_0.h"
#include "cpu/avx512vnni/float_elements.h"
#include "cpu/generic/matmul_float.inl"
#include "cpu/generic/matmul_float_panel.inl"
// clang-format on

constexpr MatMulEntry kSpecial[] = {
    {quant::F32::kType, RunFloat<ElementF32>, RunFloatPanels<ElementF32>},
    {quant::F16::kType, RunFloat<ElementF16>, RunFloatPanels<ElementF16>},
    {quant::Bf16::kType, RunFloat<ElementBf16>, RunFloatPanels<ElementBf16>},
    {quant::Q4_0::kType, RunQuantized<UnpackQ4_0>},
    {quant::Q4_1::kType, RunQuantized<UnpackQ4_1>},
    {quant::Q5_0::kType, RunQuantized<UnpackQ5_0>},
    {quant::Q5_1::kType, RunQuantized<UnpackQ5_1>},
    {quant::Q8_0::kType, RunQuantized<UnpackQ8_0>},
    {quant::Q2_K::kType, RunQuantized<UnpackQ2_K>},
    {quant::Q3_K::kType, RunQuantized<UnpackQ3_K>},
    {quant::Q4_K::kType, RunQuantized<UnpackQ4_K>},
    {quant::Q5_K::kType, RunQuantized<UnpackQ5_K>},
    {quant::Q6_K::kType, RunQuantized<UnpackQ6_K>},
    {quant::IQ4_NL::kType, RunQuantized<UnpackIQ4_NL>},
    {quant::IQ4_XS::kType, RunQuantized<UnpackIQ4_XS>},
};

}  // namespace

std::vector<MatMulKernel> MatMulKernels() {
  return WithKernelsOf(
      avx2::MatMulKernels(),
      BuildMatMulTable({"avx512vnni", kSpecial, RunQuantized<UnpackGeneric<false, 16>>,
                        RunQuantized<UnpackGeneric<true, 16>>, QuantizedScratchBytes,
                        FloatScratchBytes}));
}

}  // namespace kvant::cpu::avx512vnni

#include "cpu/avx512vnni/end.h"

#endif  // defined(__x86_64__)
