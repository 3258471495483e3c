// The formats that an instruction set encodes and decodes in its vectors, one line each. Included
// after encode.inl and float_rows.inl.

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
};

constexpr CodecEntry<DecodeFunction> kDecoders[] = {
    {quant::F32::kType, DecodeF32},
    {quant::F16::kType, DecodeHalves<ConvertF16>},
    {quant::Bf16::kType, DecodeHalves<ConvertBf16>},
};
