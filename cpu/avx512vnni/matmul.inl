// The matrix kernels of AVX-512 VNNI: the shared drivers of cpu/generic with this folder's blocks,
// unpackers and vectors, each file after those that it needs. Included inside a namespace and
// target region. A format without a line in the table goes through the kernel of AVX2, or, where
// that has no unpacker either, through unpack_generic.inl.

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
#include "cpu/avx512vnni/unpackers.inl"
#include "cpu/generic/strip_operands.inl"
#include "cpu/avx512vnni/strip_layout.inl"
#include "cpu/avx512vnni/strips.inl"
#include "cpu/generic/matmul_strips.inl"
#include "cpu/avx512vnni/float_elements.inl"
#include "cpu/generic/matmul_float.inl"
#include "cpu/generic/matmul_float_panel.inl"
#include "cpu/generic/matmul_float_tokens.inl"
// clang-format on

// Formats that take long to unpack.
template <class Unpacker>
constexpr MatMulFunction RunRare = RunWithStrips<Unpacker, Streams::kOneToken>;

constexpr MatMulEntry kSpecial[] = {
    {quant::F32::kType, RunFloat<ElementF32>, RunManyFloats<ElementF32>},
    {quant::F16::kType, RunFloat<ElementF16>, RunManyFloats<ElementF16>},
    {quant::Bf16::kType, RunFloat<ElementBf16>, RunManyFloats<ElementBf16>},
    {quant::Q4_0::kType, RunWithStrips<UnpackQ4_0>},
    {quant::Q4_1::kType, RunWithStrips<UnpackQ4_1>},
    {quant::Q5_0::kType, RunWithStrips<UnpackQ5_0>},
    {quant::Q5_1::kType, RunWithStrips<UnpackQ5_1>},
    {quant::Q8_0::kType, RunWithStrips<UnpackQ8_0>},
    {quant::Q2_K::kType, RunWithStrips<UnpackQ2_K>},
    {quant::Q3_K::kType, RunWithStrips<UnpackQ3_K>},
    {quant::Q4_K::kType, RunWithStrips<UnpackQ4_K>},
    {quant::Q5_K::kType, RunWithStrips<UnpackQ5_K>},
    {quant::Q6_K::kType, RunWithStrips<UnpackQ6_K>},
    {quant::IQ1_S::kType, RunRare<UnpackIQ1_S>},
    {quant::IQ1_M::kType, RunRare<UnpackIQ1_M>},
    {quant::IQ2_XXS::kType, RunRare<UnpackIQ2_XXS>},
    {quant::IQ2_XS::kType, RunRare<UnpackIQ2_XS>},
    {quant::IQ2_S::kType, RunRare<UnpackIQ2_S>},
    {quant::IQ3_XXS::kType, RunRare<UnpackIQ3_XXS>},
    {quant::IQ3_S::kType, RunRare<UnpackIQ3_S>},
    {quant::IQ4_NL::kType, RunWithStrips<UnpackIQ4_NL>},
    {quant::IQ4_XS::kType, RunWithStrips<UnpackIQ4_XS>},
    {quant::TQ1_0::kType, RunRare<UnpackTQ1_0>},
    {quant::TQ2_0::kType, RunWithStrips<UnpackTQ2_0>},
    {quant::MXFP4::kType, RunWithStrips<UnpackMXFP4>},
    {quant::NVFP4::kType, RunWithStrips<UnpackNVFP4>},
    {quant::Q1_0::kType, RunWithStrips<UnpackQ1_0>},
    {quant::Q2_0::kType, RunWithStrips<UnpackQ2_0>},
    {quant::Q6_0::kType, RunWithStrips<UnpackQ6_0>},
    {quant::IQ2_K::kType, RunWithStrips<UnpackShifted<quant::IQ2_K>>},
    {quant::IQ3_K::kType, RunRare<UnpackShifted<quant::IQ3_K>>},
    {quant::IQ4_K::kType, RunWithStrips<UnpackShifted<quant::IQ4_K>>},
    {quant::IQ5_K::kType, RunRare<UnpackShifted<quant::IQ5_K>>},
    {quant::IQ6_K::kType, RunRare<UnpackShifted<quant::IQ6_K>>},
    {quant::IQ2_KS::kType, RunRare<UnpackShifted<quant::IQ2_KS>>},
    {quant::IQ3_KS::kType, RunRare<UnpackShifted<quant::IQ3_KS>>},
    {quant::IQ4_KSS::kType, RunRare<UnpackShifted<quant::IQ4_KSS>>},
    {quant::IQ4_KS::kType, RunRare<UnpackShifted<quant::IQ4_KS>>},
    {quant::IQ5_KS::kType, RunRare<UnpackShifted<quant::IQ5_KS>>},
    {quant::IQ2_KL::kType, RunRare<UnpackIQ2_KL>},
    {quant::Q8_KV::kType, RunRare<UnpackQ8_KV>},
    {quant::IQ2_BN::kType, RunRare<UnpackIQ2_BN>},
    {quant::IQ1_BN::kType, RunRare<UnpackIQ1_BN>},
    {quant::IQ1_KT::kType, RunRare<UnpackTrellis<quant::IQ1_KT>>},
    {quant::IQ2_KT::kType, RunRare<UnpackTrellis<quant::IQ2_KT>>},
    {quant::IQ3_KT::kType, RunRare<UnpackTrellis<quant::IQ3_KT>>},
    {quant::IQ4_KT::kType, RunRare<UnpackTrellis<quant::IQ4_KT>>},
};
