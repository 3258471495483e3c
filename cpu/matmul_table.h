// Builds an instruction set's table of matrix kernels: one kernel per format of
// quant/format_list.h, the instruction set's own where it has one, its generic kernel otherwise.
#pragma once

#include <span>
#include <vector>

#include "cpu/kernels/matmul.h"

namespace kvant::cpu {

using MatMulFunction = void (*)(const MatMulTask& task);

struct MatMulEntry {
  quant::TensorType type;
  MatMulFunction run;
  MatMulFunction run_many = nullptr;
};

// The properties that the kernels of one instruction set have in common.
struct MatMulFamily {
  const char* isa;
  std::span<const MatMulEntry> special;  // formats with a kernel of their own
  MatMulFunction generic;                // any quantized format without offsets
  MatMulFunction generic_offsets;        // any quantized format
  size_t (*int8_scratch_bytes)(int64_t cols);
  size_t (*float_scratch_bytes)(int64_t cols);
  const char* quantized = "int8";  // the arithmetic of quantized formats, for their kernels' names
  bool panels = false;             // quantized formats have panels for many tokens
};

// One kernel per format, at the place that quant::FormatIndex gives. The names live as long as the
// process; called once per family.
std::vector<MatMulKernel> BuildMatMulTable(const MatMulFamily& family);

// `table`, in which a generic kernel gives way to the special one that `other` has for the same
// format. `other` is the table of an instruction set that every CPU with the instruction set of
// `table` has, too.
std::vector<MatMulKernel> WithKernelsOf(const std::vector<MatMulKernel>& other,
                                        std::vector<MatMulKernel> table);

// `table` with the special kernels of `family` in place of those for the same formats. `table` is
// that of an instruction set that every CPU with this one has, too.
std::vector<MatMulKernel> WithSpecialKernels(std::vector<MatMulKernel> table,
                                             const MatMulFamily& family);

}  // namespace kvant::cpu
