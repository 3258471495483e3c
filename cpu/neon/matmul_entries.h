// The formats with a kernel of their own, one line each, for cpu/neon and cpu/i8mm. Included inside
// the target region of their matmul.cpp, after the drivers and the unpackers.

constexpr MatMulEntry kSpecial[] = {
    {quant::F32::kType, RunFloat<ElementF32>, RunFloatPanels<ElementF32>},
    {quant::F16::kType, RunFloat<ElementF16>, RunFloatPanels<ElementF16>},
    {quant::Bf16::kType, RunFloat<ElementBf16>, RunFloatPanels<ElementBf16>},
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
    {quant::IQ4_NL::kType, RunInt8<UnpackIQ4_NL>},
    {quant::IQ4_XS::kType, RunInt8<UnpackIQ4_XS>},
    {quant::MXFP4::kType, RunInt8<UnpackMXFP4>},
    {quant::NVFP4::kType, RunInt8<UnpackNVFP4>},
    {quant::TQ1_0::kType, RunInt8<UnpackTQ1_0>},
    {quant::TQ2_0::kType, RunInt8<UnpackTQ2_0>},
};
