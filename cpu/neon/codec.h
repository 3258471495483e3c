// The NEON encoders and decoders of block formats.
#pragma once

#include <vector>

#include "cpu/kernels/blocks.h"

namespace kvant::cpu::neon {

// One function per format, at the place that quant::FormatIndex gives.
std::vector<EncodeFunction> EncodeFunctions();
std::vector<DecodeFunction> DecodeFunctions();

}  // namespace kvant::cpu::neon
