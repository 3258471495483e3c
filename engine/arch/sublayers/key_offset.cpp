#include "engine/arch/sublayers/key_offset.h"

#include <cmath>
#include <complex>

namespace kvant::arch {
namespace {

// The mean of e^(i * frequency * p) over the positions.
std::complex<double> MeanTurn(double frequency) {
  const double half = frequency / 2;
  const auto count = static_cast<double>(kOffsetPositions);
  if (std::sin(half) == 0) return 1;
  return std::polar(std::sin(count * half) / (count * std::sin(half)), (count - 1) * half);
}

}  // namespace

std::vector<float> MeanOfRotated(std::span<const float> bias, int64_t k_dim,
                                 const graph::RopeSpec* rope) {
  std::vector<float> mean(bias.begin(), bias.end());
  if (rope == nullptr) return mean;
  const std::vector<float> frequencies = rope->Frequencies(kOffsetPositions);
  const auto pairs = static_cast<int64_t>(frequencies.size());
  const bool halves = rope->style == cpu::RopeStyle::kHalves;
  const auto dims = static_cast<int64_t>(mean.size());
  for (int64_t head = 0; head < dims; head += k_dim) {
    for (int64_t i = 0; i < pairs; ++i) {
      const auto first = static_cast<size_t>(head + (halves ? i : 2 * i));
      const auto second = static_cast<size_t>(head + (halves ? i + pairs : 2 * i + 1));
      const std::complex<double> turned = std::complex<double>(mean[first], mean[second]) *
                                          double{rope->amplitude} *
                                          MeanTurn(double{frequencies[static_cast<size_t>(i)]});
      mean[first] = static_cast<float>(turned.real());
      mean[second] = static_cast<float>(turned.imag());
    }
  }
  return mean;
}

}  // namespace kvant::arch
