// Rows of portable_math.h by the kernels of the best instruction set that this CPU has: the bits do
// not depend on it.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "cpu/dispatch.h"
#include "cpu/kernels/table.h"
#include "engine/generate/portable_math.h"

namespace kvant {
namespace {

const cpu::KernelTable& RowKernels() {
  static const cpu::KernelTable* const kernels = cpu::ChooseKernels("").value();
  return *kernels;
}

}  // namespace

void PortableExps(std::span<double> values, double divisor) {
  RowKernels().portable_exps(values.data(), static_cast<int64_t>(values.size()), divisor);
}

void PortableLogs(std::span<double> values) {
  RowKernels().portable_logs(values.data(), static_cast<int64_t>(values.size()));
}

void SanitizeRow(std::span<const float> from, std::span<float> to) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr size_t kPiece = 64;
  size_t begin = 0;
  for (; begin + kPiece <= from.size(); begin += kPiece) {
    for (size_t i = begin; i < begin + kPiece; ++i) {
      const float value = from[i];
      const float capped = value < kMost ? value : kMost;
      to[i] = value == value ? capped : kLogitNone;
    }
  }
  for (; begin < from.size(); ++begin) to[begin] = Sanitize(from[begin]);
}

}  // namespace kvant
