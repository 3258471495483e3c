// Matrix products for AVX2 with AVX-VNNI. The interface and its numerics are described in
// cpu/kernels.h.
#pragma once

#include <vector>

#include "cpu/kernels.h"

namespace kvant::cpu::avxvnni {

// By quant::FormatIndex.
std::vector<MatMulKernel> MatMulKernels();

}  // namespace kvant::cpu::avxvnni
