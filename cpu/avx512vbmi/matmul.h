// Matrix products for AVX-512 with VBMI. The interface and its numerics are described in
// cpu/kernels/matmul.h.
#pragma once

#include <vector>

#include "cpu/kernels/matmul.h"

namespace kvant::cpu::avx512vbmi {

// One kernel per format, at the place that quant::FormatIndex gives.
std::vector<MatMulKernel> MatMulKernels();

}  // namespace kvant::cpu::avx512vbmi
