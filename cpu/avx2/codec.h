// The AVX2 encoders and decoders of block formats.
#pragma once

#include <vector>

#include "cpu/kernels/blocks.h"

namespace kvant::cpu::avx2 {

// One function per format, at the place that quant::FormatIndex gives.
std::vector<EncodeFunction> EncodeFunctions();
std::vector<DecodeFunction> DecodeFunctions();

}  // namespace kvant::cpu::avx2
