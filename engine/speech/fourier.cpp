#include "engine/speech/fourier.h"

#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/check.h"

namespace kvant::speech {
namespace {

constexpr size_t kRadixMax = 5;

std::vector<size_t> RadicesOf(size_t length) {
  std::vector<size_t> radices;
  for (const size_t radix : {4, 5, 3, 2}) {
    for (; length % radix == 0; length /= radix) radices.push_back(radix);
  }
  KVANT_CHECK(length == 1);
  return radices;
}

}  // namespace

Fourier::Fourier(size_t length)
    : radices_(RadicesOf(length)), roots_(length), values_(length), scratch_(length) {
  for (size_t k = 0; k < length; ++k) {
    const double angle =
        -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(length);
    roots_[k] = {std::cos(angle), std::sin(angle)};
  }
}

// One stage on sub-transforms of `length` values that stand `stride` apart.
void Fourier::Stage(size_t radix, size_t length, size_t stride) {
  const size_t part = length / radix;
  const size_t step = roots_.size() / length;  // between the roots of this length
  const size_t turn = roots_.size() / radix;   // between the roots of the radix
  std::array<std::complex<double>, kRadixMax> in;
  for (size_t p = 0; p < part; ++p) {
    for (size_t q = 0; q < stride; ++q) {
      for (size_t j = 0; j < radix; ++j) in[j] = values_[q + stride * (p + part * j)];
      for (size_t k = 0; k < radix; ++k) {
        double real = in[0].real();
        double imaginary = in[0].imag();
        for (size_t j = 1; j < radix; ++j) {
          const std::complex<double>& root = roots_[j * k % radix * turn];
          real += in[j].real() * root.real() - in[j].imag() * root.imag();
          imaginary += in[j].real() * root.imag() + in[j].imag() * root.real();
        }
        const std::complex<double>& root = roots_[p * k * step];
        scratch_[q + stride * (radix * p + k)] = {real * root.real() - imaginary * root.imag(),
                                                  real * root.imag() + imaginary * root.real()};
      }
    }
  }
  std::swap(values_, scratch_);
}

void Fourier::Run() {
  size_t length = values_.size();
  size_t stride = 1;
  for (const size_t radix : radices_) {
    Stage(radix, length, stride);
    length /= radix;
    stride *= radix;
  }
}

// Two real signals are one complex one: the even part of its spectrum belongs to the first, the odd
// part to the second.
void Fourier::Powers(std::span<const double> first, std::span<const double> second,
                     std::span<double> first_powers, std::span<double> second_powers) {
  const size_t size = length();
  for (size_t i = 0; i < size; ++i) values_[i] = {first[i], second[i]};
  Run();
  for (size_t k = 0; k <= size / 2; ++k) {
    const std::complex<double> here = values_[k];
    const std::complex<double> there = std::conj(values_[(size - k) % size]);
    first_powers[k] = std::norm(here + there) / 4;
    second_powers[k] = std::norm(here - there) / 4;
  }
}

}  // namespace kvant::speech
