// The formats that AVX2 and AVX-VNNI have unpackers for, and their table of kernels. A format
// without a line in the table goes through unpack_generic.inl. Included inside the target region of
// matmul.inl, after the panels and kIsaName, the folder's name.

// clang-format off
#include "cpu/avx2/unpack_pieces.inl"
#include "cpu/avx2/row_vectors.inl"
#include "cpu/generic/pack_rows.inl"
#include "cpu/generic/pack_small_blocks.inl"
#include "cpu/generic/packed_formats.inl"
#include "cpu/avx2/packed_scales.inl"
#include "cpu/avx2/unpack_generic.inl"
#include "cpu/avx2/unpack_q2_k.inl"
#include "cpu/avx2/unpack_q4_0.inl"
#include "cpu/avx2/unpack_q4_k.inl"
#include "cpu/avx2/unpack_q5_0.inl"
#include "cpu/avx2/unpack_q6_k.inl"
#include "cpu/avx2/unpack_q8_0.inl"
#include "cpu/avx2/unpack_iq4.inl"
#include "cpu/avx2/unpack_points.inl"
#include "cpu/avx2/unpack_grids.inl"
#include "cpu/avx2/unpack_shifted.inl"
#include "cpu/avx2/unpack_trellis.inl"
#include "cpu/avx2/float_elements.inl"
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
    {quant::IQ1_S::kType, RunWithStrips<UnpackIQ1_S>},
    {quant::IQ1_M::kType, RunWithStrips<UnpackIQ1_M>},
    {quant::IQ2_XXS::kType, RunWithStrips<UnpackIQ2_XXS>},
    {quant::IQ2_XS::kType, RunWithStrips<UnpackIQ2_XS>},
    {quant::IQ2_S::kType, RunWithStrips<UnpackIQ2_S>},
    {quant::IQ3_XXS::kType, RunWithStrips<UnpackIQ3_XXS>},
    {quant::IQ3_S::kType, RunWithStrips<UnpackIQ3_S>},
    {quant::IQ4_NL::kType, RunWithStrips<UnpackIQ4_NL>},
    {quant::IQ4_XS::kType, RunWithStrips<UnpackIQ4_XS>},
    {quant::MXFP4::kType, RunWithStrips<UnpackMXFP4>},
    {quant::NVFP4::kType, RunWithStrips<UnpackNVFP4>},
    {quant::TQ1_0::kType, RunRare<UnpackTQ1_0>},
    {quant::TQ2_0::kType, RunWithStrips<UnpackTQ2_0>},
    {quant::Q1_0::kType, RunWithStrips<UnpackQ1_0>},
    {quant::Q2_0::kType, RunWithStrips<UnpackQ2_0>},
    {quant::Q6_0::kType, RunWithStrips<UnpackQ6_0>},
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
    {quant::Q8_KV::kType, RunRare<UnpackQ8_KV>},
    {quant::IQ2_BN::kType, RunRare<UnpackIQ2_BN>},
    {quant::IQ1_BN::kType, RunRare<UnpackIQ1_BN>},
    {quant::IQ1_KT::kType, RunRare<UnpackTrellis<quant::IQ1_KT>>},
    {quant::IQ2_KT::kType, RunRare<UnpackTrellis<quant::IQ2_KT>>},
    {quant::IQ3_KT::kType, RunRare<UnpackTrellis<quant::IQ3_KT>>},
    {quant::IQ4_KT::kType, RunRare<UnpackTrellis<quant::IQ4_KT>>},
};

// One kernel per format, at the place that quant::FormatIndex gives.
std::vector<MatMulKernel> BuildKernels() {
  return BuildMatMulTable({kIsaName, kSpecial, RunRare<UnpackGeneric<false, 16>>,
                           RunRare<UnpackGeneric<true, 16>>, ScratchBytesWithStrips,
                           FloatScratchBytes, "int8", true});
}
