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
#include "quant/formats/iq_grids.h"
#include "quant/search/level_fit.h"
#include "quant/search/shifted_fit.h"
#include "tests/quant/round_trip.h"

namespace kvant::quant {
namespace {

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

// The least weighted squared error of one vector for a point of IQ1's grid, all of whose
// coordinates are shifted by `shift`.
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

// ---- Levels and scales against brute force -------------------------------------------------

// The level of `levels`, each greater by `shift`, that is nearest to `value`.
template <size_t kCount>
int NearestOf(const int8_t (&levels)[kCount], int shift, double value) {
  int nearest = levels[0] + shift;
  for (const int8_t level : levels) {
    if (std::fabs(level + shift - value) < std::fabs(nearest - value)) nearest = level + shift;
  }
  return nearest;
}

// With a block's scales, every value of 16 that share one has its nearest level, without the shift
// or with it. Values half way between two levels may have either.
template <size_t kCount>
void ExpectNearestLevels(const char* name, const int8_t (&levels)[kCount], int shift) {
  const FormatTraits& format = *FindFormat(name);
  ASSERT_EQ(format.head_bytes, 0);
  const auto count = static_cast<size_t>(format.block_values);
  for (uint32_t trial = 0; trial < 40; ++trial) {
    std::vector<float> values = Gaussian(count, 30 + trial);
    values[trial % count] *= 5;
    const std::vector<float> weights = Importance(count, 70 + trial);
    std::vector<std::byte> block(static_cast<size_t>(format.block_bytes));
    format.encode(values.data(), trial % 2 == 0 ? nullptr : weights.data(), block.data(),
                  format.block_values);
    IntegerBlock integers;
    format.to_integers(block.data(), integers);
    for (size_t begin = 0; begin < count; begin += 16) {
      const double scale = integers.scales[begin / 16];
      if (scale == 0) continue;
      int wrong[2] = {};
      for (size_t i = begin; i < begin + 16; ++i) {
        for (int k = 0; k < 2; ++k) {
          const double exact = double{values[i]} / scale;
          const double error = std::fabs(integers.codes[i] - exact);
          const double least = std::fabs(NearestOf(levels, k * shift, exact) - exact);
          wrong[k] += static_cast<int>(error > least + 1e-4);
        }
      }
      EXPECT_EQ(std::min(wrong[0], wrong[1]), 0) << name << ", values from " << begin;
    }
  }
}

TEST(CodebookEncode, TakesTheNearestLevels) {
  ExpectNearestLevels("IQ4_NL", kIq4Levels, 0);
  ExpectNearestLevels("IQ4_XS", kIq4Levels, 0);
  ExpectNearestLevels("MXFP4", kE2M1Levels, 0);
  ExpectNearestLevels("NVFP4", kE2M1Levels, 0);
  ExpectNearestLevels("IQ2_K", kShiftedLevels2.levels, kShiftedLevels2.shift);
  ExpectNearestLevels("IQ3_K", kShiftedLevels3.levels, kShiftedLevels3.shift);
  ExpectNearestLevels("IQ4_K", kShiftedLevels4.levels, kShiftedLevels4.shift);
  ExpectNearestLevels("IQ5_K", kShiftedLevels5.levels, kShiftedLevels5.shift);
  ExpectNearestLevels("IQ6_K", kShiftedLevels6.levels, kShiftedLevels6.shift);
}

// The least weighted squared error of 32 values over scales 0.2 % apart, of both signs, that place
// the largest magnitude between 40 and 250.
double LeastErrorOfLevels(const float* values, const float* weights) {
  double peak = 0;
  double energy = 0;
  for (int i = 0; i < 32; ++i) {
    peak = std::max(peak, std::fabs(double{values[i]}));
    energy += double{weights[i]} * values[i] * values[i];
  }
  double gain = 0;
  for (double target = 40; target < 250; target *= 1.002) {
    for (const double sign : {-1.0, 1.0}) {
      double product = 0;
      double square = 0;
      for (int i = 0; i < 32; ++i) {
        const int level = NearestOf(kIq4Levels, 0, sign * target / peak * values[i]);
        product += double{weights[i]} * values[i] * level;
        square += double{weights[i]} * level * level;
      }
      gain = std::max(gain, product * product / square);
    }
  }
  return energy - gain;
}

// The finite number of starts and the rounding of d add at most 1 % to the least error, 5 % with
// weights.
TEST(CodebookEncode, ScalesOfIq4NlAreNearTheBestOfAll) {
  constexpr size_t kCount = 32 * 60;
  const std::vector<float> values = Gaussian(kCount, 110);
  for (const bool weighted : {false, true}) {
    const std::vector<float> weights =
        weighted ? Importance(kCount, 111) : std::vector<float>(kCount, 1.0f);
    const std::vector<float> decoded = RoundTrip(*FindFormat("IQ4_NL"), values, weights.data());
    double error = 0;
    double least = 0;
    for (size_t i = 0; i < kCount; ++i) {
      error += weights[i] * std::pow(double{values[i]} - decoded[i], 2);
    }
    for (size_t i = 0; i < kCount; i += 32) {
      least += LeastErrorOfLevels(values.data() + i, weights.data() + i);
    }
    EXPECT_GE(error, 0.999 * least);
    EXPECT_LE(error, (weighted ? 1.05 : 1.01) * least);
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
