// The AVX-512 encoders and decoders of block formats.
#pragma once

#include <vector>

#include "cpu/kernels.h"

namespace kvant::cpu::avx512vnni {

// By quant::FormatIndex.
std::vector<EncodeFunction> EncodeFunctions();
std::vector<DecodeFunction> DecodeFunctions();

}  // namespace kvant::cpu::avx512vnni
