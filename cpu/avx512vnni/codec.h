// The AVX-512 encoders and decoders of block formats.
#pragma once

#include <vector>

#include "cpu/kernels/blocks.h"

namespace kvant::cpu::avx512vnni {

// One function per format, at the place that quant::FormatIndex gives.
std::vector<EncodeFunction> EncodeFunctions();
std::vector<DecodeFunction> DecodeFunctions();

}  // namespace kvant::cpu::avx512vnni
