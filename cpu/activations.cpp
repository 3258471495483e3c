#include "cpu/activations.h"

#include "base/half.h"

namespace kvant::cpu {

void MultiplyActivations(const ActivationRow& row, ActivationForm form, int64_t cols,
                         float factor) {
  const int64_t groups = (cols + 31) / 32;
  if (form == ActivationForm::kBf16) {
    for (int64_t i = 0; i < cols; ++i) {
      row.halves[i] = F32ToBf16(Bf16ToF32(row.halves[i]) * factor);
    }
    return;
  }
  // Scales, and the sums that contain them.
  for (int64_t i = 0; i < groups; ++i) row.scales[i] *= factor;
  for (int64_t i = 0; i < 2 * groups; ++i) row.sums[i] *= factor;
  for (int64_t i = 0; i < groups; ++i) row.pair_sums[i] *= factor;
}

}  // namespace kvant::cpu
