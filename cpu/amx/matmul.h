// Products with 64 and more tokens for AMX; all other matrix kernels are those of cpu/avx512vbmi.
// The interface and its numerics are described in cpu/kernels/matmul.h.
#pragma once

#include <vector>

#include "cpu/kernels/matmul.h"

namespace kvant::cpu::amx {

// One kernel per format, at the place that quant::FormatIndex gives.
std::vector<MatMulKernel> MatMulKernels();

}  // namespace kvant::cpu::amx
