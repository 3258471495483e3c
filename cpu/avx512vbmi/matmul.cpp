// The table of AVX-512 VBMI matrix kernels: those of cpu/avx512vnni, and over the same blocks
// and panels those of the formats that VBMI makes faster.
#include "cpu/avx512vbmi/matmul.h"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "cpu/avx512vnni/matmul.h"
#include "cpu/cpu_features.h"
#include "cpu/float_gemm.h"
#include "cpu/intrinsics.h"
#include "cpu/matmul_table.h"
#include "quant/format_list.h"

#include "cpu/avx512vbmi/begin.inl"

namespace kvant::cpu::avx512vbmi {
namespace {

// clang-format off
#include "cpu/avx512vnni/int8_blocks.inl"
#include "cpu/avx512vnni/prepare_blocks.inl"
#include "cpu/generic/row_reader.inl"
#include "cpu/generic/int8_kernels.inl"
#include "cpu/generic/matmul_int8.inl"
#include "cpu/generic/panel_operands.inl"
#include "cpu/avx512vnni/panel_lanes.inl"
#include "cpu/avx512vnni/panel_layout.inl"
#include "cpu/avx512vnni/int8_panel.inl"
#include "cpu/generic/matmul_panel.inl"
#include "cpu/avx512vnni/unpack_pieces.inl"
#include "cpu/avx512vnni/row_vectors.inl"
#include "cpu/generic/pack_rows.inl"
#include "cpu/generic/pack_small_blocks.inl"
#include "cpu/generic/packed_formats.inl"
#include "cpu/generic/strip_operands.inl"
#include "cpu/avx512vnni/strip_layout.inl"
#include "cpu/avx512vnni/strips.inl"
#include "cpu/generic/matmul_strips.inl"
#include "cpu/avx512vnni/point_layouts.inl"
#include "cpu/avx512vbmi/spread_points.inl"
#include "cpu/avx512vnni/unpack_grids.inl"
#include "cpu/avx512vbmi/unpack_two.inl"
#include "cpu/avx2/packed_scales.inl"
#include "cpu/avx512vnni/piece_order.inl"
#include "cpu/avx512vbmi/plane_pieces.inl"
#include "cpu/avx512vbmi/look_up.inl"
#include "cpu/avx512vnni/unpack_q2_k.inl"
#include "cpu/avx512vnni/unpack_shifted.inl"
#include "cpu/avx512vnni/unpack_e2m1.inl"
#include "cpu/avx512vbmi/unpack_e2m1.inl"
#include "cpu/avx512vbmi/unpack_few_bits.inl"
// clang-format on

template <class Unpacker>
constexpr MatMulFunction RunRare = RunWithStrips<Unpacker, Streams::kOneToken>;

constexpr MatMulEntry kSpecial[] = {
    {quant::Q3_K::kType, RunWithStrips<UnpackQ3_K>},
    {quant::NVFP4::kType, RunWithStrips<UnpackNVFP4>},
    {quant::IQ1_S::kType, RunRare<UnpackTwoIQ1_S>},
    {quant::IQ1_M::kType, RunRare<UnpackTwoIQ1_M>},
    {quant::IQ2_XXS::kType, RunRare<UnpackIQ2_XXS>},
    {quant::IQ2_XS::kType, RunRare<UnpackIQ2_XS>},
    {quant::IQ2_S::kType, RunRare<UnpackTwoIQ2_S>},
    {quant::IQ3_XXS::kType, RunRare<UnpackIQ3_XXS>},
    {quant::IQ3_S::kType, RunRare<UnpackIQ3_S>},
    {quant::IQ2_K::kType, RunWithStrips<UnpackShifted<quant::IQ2_K>>},
    {quant::IQ3_K::kType, RunWithStrips<UnpackShifted<quant::IQ3_K>>},
    {quant::IQ4_K::kType, RunWithStrips<UnpackShifted<quant::IQ4_K>>},
    {quant::IQ5_K::kType, RunWithStrips<UnpackShifted<quant::IQ5_K>>},
    {quant::IQ6_K::kType, RunRare<UnpackShifted<quant::IQ6_K>>},
    {quant::IQ2_KS::kType, RunRare<UnpackShifted<quant::IQ2_KS>>},
    {quant::IQ3_KS::kType, RunRare<UnpackShifted<quant::IQ3_KS>>},
    {quant::IQ4_KSS::kType, RunRare<UnpackShifted<quant::IQ4_KSS>>},
    {quant::IQ4_KS::kType, RunRare<UnpackShifted<quant::IQ4_KS>>},
    {quant::IQ5_KS::kType, RunRare<UnpackShifted<quant::IQ5_KS>>},
    {quant::IQ2_KL::kType, RunRare<UnpackIQ2_KL>},
    {quant::MXFP4::kType, RunWithStrips<UnpackBytesMXFP4>},
    {quant::Q1_0::kType, RunWithStrips<UnpackBytesQ1_0>},
    {quant::Q2_0::kType, RunWithStrips<UnpackBytesQ2_0>},
    {quant::IQ1_BN::kType, RunRare<UnpackBytesIQ1_BN>},
};

}  // namespace

std::vector<MatMulKernel> MatMulKernels() {
  return WithSpecialKernels(
      avx512vnni::MatMulKernels(),
      {"avx512vbmi", kSpecial, nullptr, nullptr, ScratchBytesWithStrips, nullptr, "int8", true});
}

}  // namespace kvant::cpu::avx512vbmi

#include "cpu/avx512vnni/end.inl"

#endif  // defined(__x86_64__)
