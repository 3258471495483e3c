// Matrix products for AVX2 with AVX-VNNI. The interface and its numerics are described in
// cpu/kernels/matmul.h.
#pragma once

#include <vector>

#include "cpu/kernels/matmul.h"

namespace kvant::cpu::avxvnni {

// One kernel per format, at the place that quant::FormatIndex gives.
std::vector<MatMulKernel> MatMulKernels();

}  // namespace kvant::cpu::avxvnni
