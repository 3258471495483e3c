// Encoders of the codebook, ternary and FP4 formats: against brute force over all points and signs,
// on values that a format has produced itself, and against the plain conventions.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "quant/format.h"
#include "quant/iq_grids.h"

namespace kvant::quant {
namespace {

std::vector<float> Gaussian(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Cubes of uniform numbers, as uneven as importances are.
std::vector<float> Importance(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> weights(count);
  for (float& weight : weights) {
    const float uniform = static_cast<float>(random()) * 0x1p-32f;
    weight = uniform * uniform * uniform;
  }
  return weights;
}

std::vector<float> RoundTrip(const FormatTraits& format, const std::vector<float>& values,
                             const float* importance = nullptr) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> blocks(static_cast<size_t>(format.row_bytes(count)));
  format.encode(values.data(), importance, blocks.data(), count);
  std::vector<float> decoded(values.size());
  format.decode(blocks.data(), decoded.data(), count);
  return decoded;
}

double SquaredError(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  }
  return sum;
}

// ---- Points and signs against brute force --------------------------------------------------

// The least weighted squared error of one vector for a point of the grid and any signs, by the
// parity of the number of minus signs.
template <class Grid>
void LeastErrorsByParity(const Grid& grid, const float* x, const float* w, double scale,
                         double (&least)[2]) {
  least[0] = least[1] = std::numeric_limits<double>::infinity();
  for (const auto& point : grid.points) {
    for (int signs = 0; signs < 1 << Grid::kDims; ++signs) {
      double error = 0;
      for (int j = 0; j < Grid::kDims; ++j) {
        const double code = (signs >> j & 1) != 0 ? -point[j] : point[j];
        error += w[j] * (x[j] - scale * code) * (x[j] - scale * code);
      }
      double& parity = least[std::popcount(static_cast<unsigned>(signs)) % 2];
      parity = std::min(parity, error);
    }
  }
}

// The same for points with a shift, by the shift.
double LeastErrorShifted(const float* x, const float* w, double scale, int shift) {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& point : kIq1Grid.points) {
    double error = 0;
    for (int j = 0; j < 8; ++j) {
      const double difference = x[j] - scale * (point[j] + shift);
      error += w[j] * difference * difference;
    }
    least = std::min(least, error);
  }
  return least;
}

// The weighted squared error that the encoder leaves, and `least_of(values, weights, scale)` summed
// over all groups of 16 with the scales that it chose. Scales are fitted once more after the points
// are chosen, so that the best points for the final scales may be slightly better.
template <class LeastOf>
void ExpectBestPoints(const char* name, bool weighted, LeastOf least_of) {
  const FormatTraits& format = *FindFormat(name);
  const std::vector<float> values = Gaussian(256, 21);
  const std::vector<float> weights = weighted ? Importance(256, 22) : std::vector<float>(256, 1.0f);
  std::vector<std::byte> block(static_cast<size_t>(format.block_bytes));
  format.encode(values.data(), weighted ? weights.data() : nullptr, block.data(), 256);
  std::vector<float> decoded(256);
  format.decode(block.data(), decoded.data(), 256);
  IntegerBlock integers;
  format.to_integers(block.data(), integers);
  double error = 0;
  double least = 0;
  for (size_t i = 0; i < 256; ++i) {
    error += weights[i] * std::pow(static_cast<double>(values[i]) - decoded[i], 2);
  }
  for (size_t i = 0; i < 256; i += 16) {
    least += least_of(values.data() + i, weights.data() + i, integers.scales[i / 16]);
  }
  EXPECT_GE(error, 0.9999 * least) << name;
  EXPECT_LE(error, 1.005 * least) << name;
}

TEST(CodebookEncode, TakesTheBestPointsAndSigns) {
  for (const bool weighted : {false, true}) {
    ExpectBestPoints("IQ2_XXS", weighted, [](const float* x, const float* w, double scale) {
      double sum = 0;
      for (int v = 0; v < 16; v += 8) {
        double least[2];
        LeastErrorsByParity(kIq2XxsGrid, x + v, w + v, scale, least);
        sum += least[0];
      }
      return sum;
    });
    ExpectBestPoints("IQ3_XXS", weighted, [](const float* x, const float* w, double scale) {
      double sum = 0;
      for (int v = 0; v < 16; v += 8) {
        double first[2];
        double second[2];
        LeastErrorsByParity(kIq3XxsGrid, x + v, w + v, scale, first);
        LeastErrorsByParity(kIq3XxsGrid, x + v + 4, w + v + 4, scale, second);
        sum += std::min(first[0] + second[0], first[1] + second[1]);
      }
      return sum;
    });
    ExpectBestPoints("IQ3_S", weighted, [](const float* x, const float* w, double scale) {
      double sum = 0;
      for (int v = 0; v < 16; v += 4) {
        double least[2];
        LeastErrorsByParity(kIq3SGrid, x + v, w + v, scale, least);
        sum += std::min(least[0], least[1]);
      }
      return sum;
    });
    ExpectBestPoints("IQ1_M", weighted, [](const float* x, const float* w, double scale) {
      double sum = 0;
      for (int v = 0; v < 16; v += 8) {
        sum += std::min(LeastErrorShifted(x + v, w + v, scale, 1),
                        LeastErrorShifted(x + v, w + v, scale, -1));
      }
      return sum;
    });
  }
}

// ---- Values that the format itself has produced --------------------------------------------

// Formats with few scales keep them exactly; where scales are products of two fitted numbers, what
// the second encoding adds is small against the first one's error.
TEST(CodebookEncode, KeepsDecodedValues) {
  const std::vector<float> values = Gaussian(256 * 40, 23);
  struct Case {
    const char* name;
    double ratio;
  };
  for (const Case& c : {Case{"TQ1_0", 0}, Case{"TQ2_0", 0}, Case{"MXFP4", 0}, Case{"NVFP4", 0},
                        Case{"IQ4_NL", 0.01}, Case{"IQ4_XS", 0.05}, Case{"IQ3_S", 0.1},
                        Case{"IQ3_XXS", 0.1}, Case{"IQ2_S", 0.05}, Case{"IQ2_XS", 0.05},
                        Case{"IQ2_XXS", 0.05}, Case{"IQ1_M", 0.05}, Case{"IQ1_S", 0.05}}) {
    const FormatTraits& format = *FindFormat(c.name);
    const std::vector<float> once = RoundTrip(format, values);
    const std::vector<float> twice = RoundTrip(format, once);
    EXPECT_LE(SquaredError(once, twice), c.ratio * SquaredError(values, once)) << c.name;
  }
}

TEST(CodebookEncode, TernaryWeightsAreExact) {
  std::mt19937 random(24);
  for (const char* name : {"TQ1_0", "TQ2_0"}) {
    for (const float size : {0.015625f, 0.75f, 3.0f}) {
      std::vector<float> values(512);
      for (float& value : values)
        value = size * static_cast<float>(static_cast<int>(random() % 3) - 1);
      EXPECT_EQ(RoundTrip(*FindFormat(name), values), values) << name << ' ' << size;
    }
  }
}

// ---- Against the plain conventions ---------------------------------------------------------

// Every group's peak becomes the largest number, 6, with the nearest scale; the other values take
// the nearest of E2M1's numbers.
TEST(CodebookEncode, Nvfp4LeavesLessErrorThanThePeakConvention) {
  const std::vector<float> values = Gaussian(256 * 20, 25);
  constexpr double kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  double convention = 0;
  for (size_t begin = 0; begin < values.size(); begin += 16) {
    double peak = 0;
    for (size_t i = begin; i < begin + 16; ++i) peak = std::max(peak, std::fabs(double{values[i]}));
    // Three mantissa bits, at least 2^-9.
    const double step = std::max(std::exp2(std::floor(std::log2(peak / 6)) - 3), 0x1p-9);
    const double scale = std::nearbyint(peak / 6 / step) * step;
    for (size_t i = begin; i < begin + 16; ++i) {
      double least = std::numeric_limits<double>::infinity();
      for (const double number : kNumbers) {
        least = std::min(least, std::fabs(std::fabs(double{values[i]}) - scale * number));
      }
      convention += least * least;
    }
  }
  EXPECT_LT(SquaredError(values, RoundTrip(*FindFormat("NVFP4"), values)), 0.95 * convention);
}

TEST(CodebookEncode, LargestBlocksStayFinite) {
  const float kMax = std::numeric_limits<float>::max();
  const FormatTraits& mxfp4 = *FindFormat("MXFP4");
  for (const float value : RoundTrip(mxfp4, std::vector<float>(32, kMax))) {
    EXPECT_EQ(value, 0x1.8p127f);
  }
}

}  // namespace
}  // namespace kvant::quant
