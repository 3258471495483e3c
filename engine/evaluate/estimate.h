// Means and their standard errors: sqrt(variance / (count - 1)). Thread-safety: plain data.
#pragma once

#include <cmath>
#include <cstdint>

namespace kvant::evaluate {

struct Estimate {
  double value = 0;
  double error = 0;  // one standard deviation of the mean
};

// Sums from which means and their errors follow.
struct Sums {
  double sum = 0;
  double squares = 0;

  void Add(double x) {
    sum += x;
    squares += x * x;
  }
  Estimate Mean(int64_t count) const {
    const double n = static_cast<double>(count);
    const double mean = sum / n;
    const double variance = squares / n - mean * mean;
    return {mean, count > 1 && variance > 0 ? std::sqrt(variance / (n - 1)) : 0};
  }
};

// e^x of an estimate; the error to first order.
inline Estimate Exp(const Estimate& x) {
  const double value = std::exp(x.value);
  return {value, value * x.error};
}

}  // namespace kvant::evaluate
