#include "cpu/scalar/selective_scan.h"

#include <cmath>

#include "cpu/scalar/math.h"

namespace kvant::cpu::scalar {

// Column by column, with the parts of sums and the fused operations of cpu/generic.
void SelectiveScan(const SelectiveScanTask& task) {
  for (int64_t t = 0; t < task.rows; ++t) {
    const float* b = task.b + t * task.bc_stride;
    const float* c = task.c + t * task.bc_stride;
    for (int64_t column = 0; column < task.cols; ++column) {
      const float x = task.x[t * task.x_stride + column];
      const float step = task.steps[t * task.step_stride + column];
      float parts[4] = {};
      for (int64_t i = 0; i < task.depth; ++i) {
        float& state = task.state[i * kScanColumns + column];
        const float decay = Exp(step * task.rates[i * kScanColumns + column]);
        state = std::fma(b[i], step * x, decay * state);
        float& part = parts[i % 4];
        part = std::fma(c[i], state, part);
      }
      const float sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
      task.out[t * task.out_stride + column] = std::fma(task.skips[column], x, sum);
    }
  }
}

}  // namespace kvant::cpu::scalar
