// Matrix products and the activation quantizer for NEON with dot products. The interface and its
// numerics are described in cpu/kernels/matmul.h.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/activations.h"
#include "cpu/kernels/matmul.h"

namespace kvant::cpu::neon {

// One kernel per format, at the place that quant::FormatIndex gives.
std::vector<MatMulKernel> MatMulKernels();

// KernelTable::quantize. Groups of 32 whose largest magnitude is below 2^-100 count as all zero.
void QuantizeActivations(const float* values, int64_t cols, const ActivationRow& out);

}  // namespace kvant::cpu::neon
