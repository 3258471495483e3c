// The formats that an instruction set encodes and decodes in its vectors, one line each. Included
// after encode.inl, codebook_encode.inl and float_rows.inl.

constexpr CodecEntry<EncodeFunction> kEncoders[] = {
    {quant::F32::kType, EncodeF32},
    {quant::F16::kType, EncodeHalves<ConvertF16>},
    {quant::Bf16::kType, EncodeHalves<ConvertBf16>},
    {quant::Q4_0::kType, EncodeRows<quant::Q4_0>},
    {quant::Q4_1::kType, EncodeRows<quant::Q4_1>},
    {quant::Q5_0::kType, EncodeRows<quant::Q5_0>},
    {quant::Q5_1::kType, EncodeRows<quant::Q5_1>},
    {quant::Q8_0::kType, EncodeRows<quant::Q8_0>},
    {quant::Q2_K::kType, EncodeRows<quant::Q2_K>},
    {quant::Q3_K::kType, EncodeRows<quant::Q3_K>},
    {quant::Q4_K::kType, EncodeRows<quant::Q4_K>},
    {quant::Q5_K::kType, EncodeRows<quant::Q5_K>},
    {quant::Q6_K::kType, EncodeRows<quant::Q6_K>},
    {quant::IQ1_S::kType, codebook::EncodeBlocks<quant::IQ1_S, codebook::SearchIq1S>},
    {quant::IQ1_M::kType, codebook::EncodeBlocks<quant::IQ1_M, codebook::SearchIq1M>},
    {quant::IQ2_XXS::kType, codebook::EncodeBlocks<quant::IQ2_XXS, codebook::SearchIq2Xxs>},
    {quant::IQ2_XS::kType, codebook::EncodeBlocks<quant::IQ2_XS, codebook::SearchIq2Xs>},
    {quant::IQ2_S::kType, codebook::EncodeBlocks<quant::IQ2_S, codebook::SearchIq2S>},
    {quant::IQ3_XXS::kType, codebook::EncodeBlocks<quant::IQ3_XXS, codebook::SearchIq3Xxs>},
    {quant::IQ3_S::kType, codebook::EncodeBlocks<quant::IQ3_S, codebook::SearchIq3S>},
    {quant::IQ4_NL::kType, codebook::EncodeBlocks<quant::IQ4_NL, codebook::SearchIq4Nl>},
    {quant::IQ4_XS::kType, codebook::EncodeBlocks<quant::IQ4_XS, codebook::SearchIq4Xs>},
    {quant::TQ1_0::kType, codebook::EncodeBlocks<quant::TQ1_0, codebook::SearchTernary>},
    {quant::TQ2_0::kType, codebook::EncodeBlocks<quant::TQ2_0, codebook::SearchTernaryUpTo2>},
    {quant::MXFP4::kType, codebook::EncodeBlocks<quant::MXFP4, codebook::SearchMxfp4>},
    {quant::NVFP4::kType, codebook::EncodeBlocks<quant::NVFP4, codebook::SearchNvfp4>},
};

constexpr CodecEntry<DecodeFunction> kDecoders[] = {
    {quant::F32::kType, DecodeF32},
    {quant::F16::kType, DecodeHalves<ConvertF16>},
    {quant::Bf16::kType, DecodeHalves<ConvertBf16>},
};
