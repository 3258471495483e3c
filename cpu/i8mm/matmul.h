// Matrix products for NEON with products of byte matrices. The interface and its numerics are
// described in cpu/kernels/matmul.h.
#pragma once

#include <vector>

#include "cpu/kernels/matmul.h"

namespace kvant::cpu::i8mm {

// One kernel per format, at the place that quant::FormatIndex gives.
std::vector<MatMulKernel> MatMulKernels();

}  // namespace kvant::cpu::i8mm
