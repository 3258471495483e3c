// The scan of Mamba 1, a kernel that few models need. It stands beside the table of an instruction
// set (cpu/kernels.h), whose promises hold for it, too.
#pragma once

#include <cstdint>

#include "cpu/kernels.h"

namespace kvant::cpu {

// For each row in turn and each column: the state, [depth][kScanColumns], becomes exp(step * rate)
// * state + b * step * x; then out = c . state + skip * x. b and c are those of all columns, rates
// those of each number of the state.
struct SelectiveScanTask {
  int64_t rows;
  int64_t depth;  // of b and c
  int64_t cols;   // at most kScanColumns
  const float* x;
  int64_t x_stride;
  const float* steps;
  int64_t step_stride;
  const float* b;
  const float* c;
  int64_t bc_stride;
  const float* rates;  // [depth][kScanColumns]; zeros in columns beyond `cols`
  const float* skips;  // [cols]
  float* state;        // columns beyond `cols` are zeros and stay so
  float* out;
  int64_t out_stride;
};

using SelectiveScanFunction = void (*)(const SelectiveScanTask& task);

// The function of the instruction set that has this table; the same bits on all of them.
SelectiveScanFunction SelectiveScanOf(const KernelTable& kernels);

}  // namespace kvant::cpu
