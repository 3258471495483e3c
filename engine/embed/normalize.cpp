#include "engine/embed/normalize.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"

namespace kvant::embed {
namespace {

// The largest magnitude of a vector that is scaled to numbers of 16 bits.
constexpr double kLargest = 32760;

double Largest(std::span<const float> values) {
  double largest = 0;
  for (const float value : values)
    largest = std::max(largest, std::abs(static_cast<double>(value)));
  return largest;
}

double PowerNorm(double power, std::span<const float> values) {
  double sum = 0;
  if (power == 2) {
    for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
    return std::sqrt(sum);
  }
  // Relative to the largest, lest powers overflow.
  const double largest = Largest(values);
  if (largest == 0) return 0;
  for (const float value : values) {
    sum += std::pow(std::abs(static_cast<double>(value)) / largest, power);
  }
  return largest * std::pow(sum, 1 / power);
}

}  // namespace

Status CheckNormalize(double kind) {
  if (kind == -1 || (kind >= 0 && std::isfinite(kind))) return {};
  return MakeError(
      ErrorCode::kInvalid,
      "normalize: expected -1 (nothing), 0 (the largest becomes 32760) or the power of "
      "a norm, such as 2, found {}",
      kind);
}

void Normalize(double kind, std::span<float> values) {
  if (kind == -1) return;
  const double norm = kind == 0 ? Largest(values) / kLargest : PowerNorm(kind, values);
  if (norm == 0) return;
  for (float& value : values) value = static_cast<float>(static_cast<double>(value) / norm);
}

}  // namespace kvant::embed
