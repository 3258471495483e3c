// The formats that cpu/neon and cpu/i8mm have unpackers for, and their table. A format without a
// line in it goes through unpack_generic.inl. Included inside the target region of their
// matmul.inl.

// clang-format off
#include "cpu/neon/unpack_pieces.inl"
#include "cpu/neon/unpack_generic.inl"
#include "cpu/neon/unpack_q4_0.inl"
#include "cpu/neon/unpack_q2_k.inl"
#include "cpu/neon/unpack_q5_0.inl"
#include "cpu/neon/unpack_iq4.inl"
#include "cpu/neon/unpack_grids.inl"
#include "cpu/neon/unpack_shifted.inl"
#include "cpu/neon/unpack_trellis.inl"
#include "cpu/neon/unpack_few_bits.inl"
#include "cpu/neon/unpack_q4_k.inl"
#include "cpu/neon/unpack_q6_k.inl"
#include "cpu/neon/unpack_q8_0.inl"
#include "cpu/neon/float_elements.inl"
#include "cpu/generic/matmul_float.inl"
#include "cpu/generic/matmul_float_panel.inl"
#include "cpu/generic/matmul_float_tokens.inl"
// clang-format on

// Formats that take long to unpack.
template <class Unpacker>
constexpr MatMulFunction RunRare = RunInt8<Unpacker, Streams::kOneToken>;

constexpr MatMulEntry kSpecial[] = {
    {quant::F32::kType, RunFloat<ElementF32>, RunManyFloats<ElementF32>},
    {quant::F16::kType, RunFloat<ElementF16>, RunManyFloats<ElementF16>},
    {quant::Bf16::kType, RunFloat<ElementBf16>, RunManyFloats<ElementBf16>},
    {quant::Q4_0::kType, RunInt8<UnpackQ4_0>},
    {quant::Q4_1::kType, RunInt8<UnpackQ4_1>},
    {quant::Q5_0::kType, RunInt8<UnpackQ5_0>},
    {quant::Q5_1::kType, RunInt8<UnpackQ5_1>},
    {quant::Q8_0::kType, RunInt8<UnpackQ8_0>},
    {quant::Q2_K::kType, RunInt8<UnpackQ2_K>},
    {quant::Q3_K::kType, RunInt8<UnpackQ3_K>},
    {quant::Q4_K::kType, RunInt8<UnpackQ4_K>},
    {quant::Q5_K::kType, RunInt8<UnpackQ5_K>},
    {quant::Q6_K::kType, RunInt8<UnpackQ6_K>},
    {quant::IQ1_S::kType, RunRare<UnpackIQ1_S>},
    {quant::IQ1_M::kType, RunRare<UnpackIQ1_M>},
    {quant::IQ2_XXS::kType, RunRare<UnpackIQ2_XXS>},
    {quant::IQ2_XS::kType, RunRare<UnpackIQ2_XS>},
    {quant::IQ2_S::kType, RunRare<UnpackIQ2_S>},
    {quant::IQ3_XXS::kType, RunRare<UnpackIQ3_XXS>},
    {quant::IQ3_S::kType, RunRare<UnpackIQ3_S>},
    {quant::IQ4_NL::kType, RunInt8<UnpackIQ4_NL>},
    {quant::IQ4_XS::kType, RunInt8<UnpackIQ4_XS>},
    {quant::MXFP4::kType, RunInt8<UnpackMXFP4>},
    {quant::NVFP4::kType, RunInt8<UnpackNVFP4>},
    {quant::TQ1_0::kType, RunRare<UnpackTQ1_0>},
    {quant::TQ2_0::kType, RunInt8<UnpackTQ2_0>},
    {quant::Q1_0::kType, RunInt8<UnpackQ1_0>},
    {quant::Q2_0::kType, RunInt8<UnpackQ2_0>},
    {quant::Q6_0::kType, RunInt8<UnpackQ6_0>},
    {quant::IQ2_K::kType, RunRare<UnpackShifted<quant::IQ2_K>>},
    {quant::IQ3_K::kType, RunRare<UnpackShifted<quant::IQ3_K>>},
    {quant::IQ4_K::kType, RunRare<UnpackShifted<quant::IQ4_K>>},
    {quant::IQ5_K::kType, RunRare<UnpackShifted<quant::IQ5_K>>},
    {quant::IQ6_K::kType, RunRare<UnpackShifted<quant::IQ6_K>>},
    {quant::IQ2_KS::kType, RunRare<UnpackShifted<quant::IQ2_KS>>},
    {quant::IQ3_KS::kType, RunRare<UnpackShifted<quant::IQ3_KS>>},
    {quant::IQ4_KSS::kType, RunRare<UnpackShifted<quant::IQ4_KSS>>},
    {quant::IQ4_KS::kType, RunRare<UnpackShifted<quant::IQ4_KS>>},
    {quant::IQ5_KS::kType, RunRare<UnpackShifted<quant::IQ5_KS>>},
    {quant::IQ2_KL::kType, RunRare<UnpackIQ2_KL>},
    {quant::Q8_KV::kType, RunInt8<UnpackQ8_KV>},
    {quant::IQ2_BN::kType, RunInt8<UnpackIQ2_BN>},
    {quant::IQ1_BN::kType, RunRare<UnpackIQ1_BN>},
    {quant::IQ1_KT::kType, RunRare<UnpackTrellis<quant::IQ1_KT>>},
    {quant::IQ2_KT::kType, RunRare<UnpackTrellis<quant::IQ2_KT>>},
    {quant::IQ3_KT::kType, RunRare<UnpackTrellis<quant::IQ3_KT>>},
    {quant::IQ4_KT::kType, RunRare<UnpackTrellis<quant::IQ4_KT>>},
};
