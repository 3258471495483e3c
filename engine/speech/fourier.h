// The discrete Fourier transform of one length: a product of 2, 3, 4 and 5, such as the 400 samples
// of a frame of Whisper's features.
//
// Stockham's form of the mixed-radix algorithm: each stage reads one buffer and writes the other in
// order, so nothing is reversed. Sums are doubles. Thread-safety: one thread at a time per object.
#pragma once

#include <complex>
#include <cstddef>
#include <span>
#include <vector>

namespace kvant::speech {

class Fourier {
 public:
  // `length` must be a product of these factors.
  explicit Fourier(size_t length);

  size_t length() const { return roots_.size(); }

  // The squared magnitudes of the coefficients 0 to length / 2 of two real signals, [length] each.
  void Powers(std::span<const double> first, std::span<const double> second,
              std::span<double> first_powers, std::span<double> second_powers);

 private:
  void Run();
  void Stage(size_t radix, size_t length, size_t stride);

  std::vector<size_t> radices_;
  std::vector<std::complex<double>> roots_;  // exp(-2 pi i k / length)
  std::vector<std::complex<double>> values_;
  std::vector<std::complex<double>> scratch_;
};

}  // namespace kvant::speech
