// The kernels over rows against formulas in double precision, with bounds that follow from the
// number of rounded operations, and against the reference instruction set bit by bit.
#include <cmath>
#include <complex>
#include <limits>
#include <random>

#include "cpu/kernels/activation.h"
#include "cpu/kernels/rope.h"
#include "cpu/kernels/table.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu::test {
namespace {

constexpr int64_t kRowLengths[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 48, 64, 80, 172, 256, 2048};

std::vector<float> RandomRow(int64_t count, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> row(static_cast<size_t>(count));
  for (float& value : row) value = normal(generator);
  return row;
}

class Rows : public IsaTest {};
KVANT_FOR_EACH_ISA(Rows);

TEST_P(Rows, RmsNormIsWithinItsRoundings) {
  for (const int64_t cols : kRowLengths) {
    const GuardedArray<float> x(RandomRow(cols, 1, 3.0f));
    const GuardedArray<float> weight(RandomRow(cols, 2));
    const GuardedArray<float> out(static_cast<size_t>(cols));
    constexpr float kEpsilon = 1e-5f;
    kernels().rms_norm(x.data(), weight.data(), cols, kEpsilon, out.data());

    double squares = 0.0;
    for (const float value : x) squares += double{value} * value;
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(cols) + kEpsilon);
    // The sum: one rounding per term of a lane and four over the lanes, halved by the root. Then
    // the mean, the addition, the root, the reciprocal and two products.
    const double roundings = (static_cast<double>(cols) / 16 + 5 + 2) / 2 + 4;
    for (size_t i = 0; i < out.size(); ++i) {
      const double expected = double{x[i]} * factor * weight[i];
      ASSERT_NEAR(out[i], expected, 1.01 * roundings * kRounding * std::abs(expected))
          << cols << " columns, element " << i;
    }
    std::vector<float> reference_out(out.size());
    reference().rms_norm(x.data(), weight.data(), cols, kEpsilon, reference_out.data());
    ExpectSameBits(out.ToVector(), reference_out, "rms_norm");
  }
}

TEST_P(Rows, LayerNormIsWithinItsRoundingsAndMayWorkInPlace) {
  constexpr float kEpsilon = 1e-5f;
  for (const int64_t cols : kRowLengths) {
    for (const bool has_bias : {false, true}) {
      std::vector<float> row = RandomRow(cols, 1, 3.0f);
      for (float& value : row) value += 0.7f;
      const GuardedArray<float> x(row);
      const GuardedArray<float> weight(RandomRow(cols, 2));
      const GuardedArray<float> biases(RandomRow(cols, 3));
      const float* bias = has_bias ? biases.data() : nullptr;
      kernels().layer_norm(x.data(), weight.data(), bias, cols, kEpsilon, x.data());
      double mean = 0;
      for (const float value : row) mean += double{value} / static_cast<double>(cols);
      double squares = 0;
      for (const float value : row) squares += (value - mean) * (value - mean);
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(cols) + kEpsilon);
      // Values of up to a dozen less their mean: a sum of as many terms as a lane has, and the
      // roundings of rms_norm.
      const double tolerance =
          20 * kRounding * (static_cast<double>(cols) / 16 + 16) * std::max(1.0, factor);
      for (size_t i = 0; i < row.size(); ++i) {
        const double expected = (row[i] - mean) * factor * weight[i] + (has_bias ? biases[i] : 0);
        ASSERT_NEAR(x[i], expected, tolerance) << cols << " columns, element " << i;
      }
      std::vector<float> reference_out(row.size());
      reference().layer_norm(row.data(), weight.data(), bias, cols, kEpsilon, reference_out.data());
      ExpectSameBits(x.ToVector(), reference_out, "layer_norm");
    }
  }
}

TEST_P(Rows, AddIsExactlyRoundedAndMayWorkInPlace) {
  for (const int64_t cols : kRowLengths) {
    const GuardedArray<float> a(RandomRow(cols, 3));
    const GuardedArray<float> b(RandomRow(cols, 4, 1e-3f));
    std::vector<float> expected;
    for (size_t i = 0; i < a.size(); ++i) expected.push_back(a[i] + b[i]);
    kernels().add(a.data(), b.data(), cols, a.data());
    ExpectSameBits(a.ToVector(), expected, "add");
  }
}

// With up = 1 and a very negative gate the result is gate / e^-gate, which shows the exponential
// itself: 2 ulp of it and half an ulp of the division.
TEST_P(Rows, TheExponentialIsWithinTwoUlp) {
  std::vector<float> gates;
  for (float gate = -87.0f; gate < -20.0f; gate += 0.00071f) gates.push_back(gate);
  const std::vector<float> ones(gates.size(), 1.0f);
  std::vector<float> out(gates.size());
  kernels()
      .ForActivation(Activation::kSilu)
      .multiply(gates.data(), ones.data(), static_cast<int64_t>(gates.size()), out.data());
  for (size_t i = 0; i < gates.size(); ++i) {
    const double gate = gates[i];
    const double expected = gate / (1.0 + std::exp(-gate));
    ASSERT_NEAR(out[i], expected, (2.0 * 2 + 1) * kRounding * 1.0001 * std::abs(expected)) << gate;
  }
}

// Each activation in double precision, and how far from it a kernel may be.
struct ActivationReference {
  Activation activation;
  double (*value)(double x);
  double (*error)(double x, double value);
  // The factor that the result is multiplied with; null: `up` as it is.
  float (*factor)(float up) = nullptr;
};

constexpr ActivationReference kActivationReferences[] = {
    // 2 ulp of the exponential, then addition and division.
    {Activation::kSilu, [](double x) { return x / (1.0 + std::exp(-x)); },
     [](double, double value) { return (2 * 2 + 2) * kRounding * 1.01 * std::abs(value); }},
    // The roundings of kSilu, and four roundings of the exponent 2 u, which the exponential makes
    // relative ones. tanh(u) near -1 takes digits from the expected value itself.
    {Activation::kGeluTanh,
     [](double x) {
       const double u = std::sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
       return 0.5 * x * (1.0 + std::tanh(u));
     },
     [](double x, double value) {
       const double u = std::sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
       return (2 * 2 + 2 + 4 * std::abs(2 * u)) * kRounding * 1.01 * std::abs(value) +
              1e-15 * std::abs(x);
     }},
    // Half of what the approximation of erfc may be off, and roundings of terms below |x|.
    {Activation::kGeluErf, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); },
     [](double x, double) { return (0.75e-7 + 2 * kRounding) * std::abs(x); }},
    {Activation::kRelu, [](double x) { return x > 0 ? x : 0.0; },
     [](double, double) { return 0.0; }},
    {Activation::kReluSquared, [](double x) { return x > 0 ? x * x : 0.0; },
     [](double, double value) { return kRounding * value; }},
    // The roundings of SiLU, and that of an exponent.
    {Activation::kSwigluClamped,
     [](double x) {
       const double gate = std::min(x, 7.0);
       return gate / (1.0 + std::exp(-double{1.702f} * gate));
     },
     [](double x, double value) {
       return (2 * 2 + 2 + 2 * std::abs(1.702 * std::min(x, 7.0))) * kRounding * 1.01 *
              std::abs(value);
     },
     [](float up) { return std::clamp(up, -7.0f, 7.0f) + 1.0f; }},
    {Activation::kTanh, [](double x) { return std::tanh(x); },
     [](double, double) { return 0x1p-21; }},
    {Activation::kSigmoid, [](double x) { return 1.0 / (1.0 + std::exp(-x)); },
     [](double, double value) { return (2 * 2 + 2) * kRounding * 1.01 * value; }},
    // Errors of an exponent are relative ones of the result.
    {Activation::kDecay, [](double x) { return std::exp(-std::exp(x)); },
     [](double x, double value) {
       return (2 * 2 + 2 * 2 * std::exp(x)) * kRounding * 1.01 * value + 1e-44;
     }},
    {Activation::kBoundedDecay,
     [](double x) { return std::exp(-std::exp(-0.5) / (1.0 + std::exp(-x))); },
     [](double, double value) { return (2 * 2 + 8) * kRounding * 1.01 * value; }},
    // Roundings of the sum, of the exponential and of the exponent, which is below 1 in size where
    // its exponential counts.
    {Activation::kSoftplus,
     [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); },
     [](double x, double value) {
       return (2 * 2 + 8) * kRounding * (value + std::exp(-std::abs(x)));
     }},
    {Activation::kSoftplusOfTwo,
     [](double x) { return std::max(x, 0.0) + std::log2(1 + std::exp2(-std::abs(x))); },
     [](double x, double value) {
       return (2 * 2 + 12 + std::abs(x)) * kRounding * (value + 2 * std::exp2(-std::abs(x)));
     }},
};

// Whether the results stay between 0 and 1, or between -1 and 1.
bool IsBounded(Activation activation) {
  return activation >= Activation::kTanh && activation <= Activation::kBoundedDecay;
}

TEST_P(Rows, EveryActivationIsWithinItsRoundings) {
  ASSERT_EQ(kernels().activations.size(), std::size(kActivationReferences));
  for (const ActivationReference& wanted : kActivationReferences) {
    const ActivationKernel& kernel = kernels().ForActivation(wanted.activation);
    const ActivationKernel& scalar = reference().ForActivation(wanted.activation);
    ASSERT_STREQ(kernel.name, scalar.name);
    for (const int64_t cols : kRowLengths) {
      const GuardedArray<float> x(RandomRow(cols, 5, 4.0f));
      const GuardedArray<float> up(RandomRow(cols, 6, 5.0f));
      const GuardedArray<float> out(x.size());
      kernel.apply(x.data(), cols, out.data());
      for (size_t i = 0; i < x.size(); ++i) {
        const double expected = wanted.value(x[i]);
        ASSERT_NEAR(out[i], expected, wanted.error(x[i], expected)) << kernel.name << " " << x[i];
      }
      std::vector<float> same(x.size());
      scalar.apply(x.data(), cols, same.data());
      ExpectSameBits(out.ToVector(), same, kernel.name);

      std::vector<float> products(x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        products[i] = out[i] * (wanted.factor == nullptr ? up[i] : wanted.factor(up[i]));
      }
      kernel.multiply(x.data(), up.data(), cols, x.data());
      ExpectSameBits(x.ToVector(), products, kernel.name);
    }
  }
}

TEST_P(Rows, EveryActivationKeepsToTheLimits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const ActivationKernel& kernel : kernels().activations) {
    if (IsBounded(kernel.activation)) continue;
    const std::vector<float> x = {0.0f, 1e18f, kInfinity, -40.0f, -1e30f, -150.0f, NAN};
    std::vector<float> out(x.size());
    kernel.apply(x.data(), static_cast<int64_t>(x.size()), out.data());
    const bool squared = kernel.activation == Activation::kReluSquared;
    const bool clamped = kernel.activation == Activation::kSwigluClamped;
    if (kernel.activation == Activation::kSoftplus) {
      EXPECT_NEAR(out[0], std::log(2.0), 1e-6);
    } else if (kernel.activation == Activation::kSoftplusOfTwo) {
      EXPECT_NEAR(out[0], 1.0, 1e-6);
    } else {
      EXPECT_EQ(out[0], 0.0f) << kernel.name;
    }
    if (clamped) {
      EXPECT_NEAR(out[1], 7.0, 1e-4) << kernel.name;
      EXPECT_EQ(out[2], out[1]) << kernel.name;
    } else {
      EXPECT_FLOAT_EQ(out[1], squared ? 1e18f * 1e18f : 1e18f) << kernel.name;
      EXPECT_EQ(out[2], kInfinity) << kernel.name;
    }
    EXPECT_NEAR(out[3], 0.0, kernel.activation == Activation::kSoftplusOfTwo ? 2e-12 : 1e-15);
    // The true value is 0 or less than any normal float.
    constexpr float kTiny = std::numeric_limits<float>::min();
    EXPECT_LT(std::abs(out[4]), kTiny) << kernel.name;
    EXPECT_LT(std::abs(out[5]), kTiny) << kernel.name;
    EXPECT_TRUE(std::isnan(out[6])) << kernel.name;
  }
}

TEST_P(Rows, BoundedActivationsHaveTheirEnds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x = {-kInfinity, -1e30f, 1e30f, kInfinity, NAN};
  // Where x is very small, and where it is very large.
  const struct {
    Activation activation;
    double low, high;
  } ends[] = {{Activation::kTanh, -1, 1},
              {Activation::kSigmoid, 0, 1},
              {Activation::kDecay, 1, 0},
              {Activation::kBoundedDecay, 1, std::exp(-std::exp(-0.5))}};
  for (const auto& end : ends) {
    std::vector<float> out(x.size());
    kernels().ForActivation(end.activation).apply(x.data(), std::ssize(x), out.data());
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(out[i], i < 2 ? end.low : end.high, 1e-6);
    EXPECT_TRUE(std::isnan(out[4]));
  }
}

TEST_P(Rows, SiluMultiplyIsWithinItsRoundings) {
  for (const int64_t cols : kRowLengths) {
    const GuardedArray<float> gate(RandomRow(cols, 5, 8.0f));
    const GuardedArray<float> up(RandomRow(cols, 6));
    std::vector<float> reference_out(gate.size());
    reference()
        .ForActivation(Activation::kSilu)
        .multiply(gate.data(), up.data(), cols, reference_out.data());
    std::vector<double> expected;
    for (size_t i = 0; i < gate.size(); ++i) {
      expected.push_back(double{gate[i]} / (1.0 + std::exp(-double{gate[i]})) * up[i]);
    }
    kernels().ForActivation(Activation::kSilu).multiply(gate.data(), up.data(), cols, gate.data());
    for (size_t i = 0; i < expected.size(); ++i) {
      // 2 ulp of the exponential, then addition, division and product.
      ASSERT_NEAR(gate[i], expected[i], (2 * 2 + 3) * kRounding * 1.01 * std::abs(expected[i]));
    }
    ExpectSameBits(gate.ToVector(), reference_out, "silu_multiply");
  }
}

TEST_P(Rows, SiluMultiplyKeepsToTheLimits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> gate = {0.0f, -0.0f, 1e30f, kInfinity, -1e30f, -88.0f, -104.0f, NAN};
  const std::vector<float> up(gate.size(), 2.0f);
  std::vector<float> out(gate.size());
  kernels()
      .ForActivation(Activation::kSilu)
      .multiply(gate.data(), up.data(), static_cast<int64_t>(gate.size()), out.data());
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[2], 2e30f);
  EXPECT_EQ(out[3], kInfinity);
  EXPECT_EQ(out[4], 0.0f);
  EXPECT_NEAR(out[5], 0.0, 1e-35);
  EXPECT_EQ(out[6], 0.0f);
  EXPECT_TRUE(std::isnan(out[7]));
}

TEST_P(Rows, GeluMultiplyIsWithinItsRoundings) {
  const double root = std::sqrt(2.0 / 3.14159265358979323846);
  for (const int64_t cols : kRowLengths) {
    const GuardedArray<float> gate(RandomRow(cols, 9, 4.0f));
    const GuardedArray<float> up(RandomRow(cols, 10));
    std::vector<float> reference_out(gate.size());
    reference()
        .ForActivation(Activation::kGeluTanh)
        .multiply(gate.data(), up.data(), cols, reference_out.data());
    std::vector<double> expected;
    std::vector<double> bound;
    for (size_t i = 0; i < gate.size(); ++i) {
      const double x = gate[i];
      const double u = root * (x + 0.044715 * x * x * x);
      expected.push_back(0.5 * x * (1.0 + std::tanh(u)) * double{up[i]});
      // The roundings of SiLU, and four roundings of the exponent 2 u, which the exponential makes
      // relative ones. tanh(u) near -1 takes digits from the expected value itself.
      const double roundings = 2 * 2 + 3 + 4 * std::abs(2 * u);
      bound.push_back(roundings * kRounding * 1.01 * std::abs(expected.back()) +
                      1e-15 * std::abs(x * double{up[i]}));
    }
    kernels()
        .ForActivation(Activation::kGeluTanh)
        .multiply(gate.data(), up.data(), cols, gate.data());
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(gate[i], expected[i], bound[i]);
    ExpectSameBits(gate.ToVector(), reference_out, "gelu_multiply");
  }
}

TEST_P(Rows, CapIsWithinItsBoundAndKeepsToTheLimits) {
  for (const int64_t cols : kRowLengths) {
    for (const float cap : {0.5f, 30.0f}) {
      const GuardedArray<float> values(RandomRow(cols, 11, 20.0f));
      std::vector<float> expected = values.ToVector();
      std::vector<float> reference_out = values.ToVector();
      reference().cap(reference_out.data(), cols, cap);
      kernels().cap(values.data(), cols, cap);
      for (size_t i = 0; i < expected.size(); ++i) {
        const double exact = double{cap} * std::tanh(double{expected[i]} / double{cap});
        ASSERT_NEAR(values[i], exact, double{cap} * 0x1p-21);
      }
      ExpectSameBits(values.ToVector(), reference_out, "cap");
    }
  }
  std::vector<float> far = {1e30f, -1e30f, std::numeric_limits<float>::infinity(), 0.0f, NAN};
  kernels().cap(far.data(), static_cast<int64_t>(far.size()), 2.0f);
  EXPECT_EQ(far[0], 2.0f);
  EXPECT_EQ(far[1], -2.0f);
  EXPECT_EQ(far[2], 2.0f);
  EXPECT_EQ(far[3], 0.0f);
  EXPECT_TRUE(std::isnan(far[4]));
}

TEST_P(Rows, GeluMultiplyKeepsToTheLimits) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> gate = {0.0f, -0.0f, 1e30f, kInfinity, -1e30f, -12.0f, -40.0f, NAN};
  const std::vector<float> up(gate.size(), 2.0f);
  std::vector<float> out(gate.size());
  kernels()
      .ForActivation(Activation::kGeluTanh)
      .multiply(gate.data(), up.data(), static_cast<int64_t>(gate.size()), out.data());
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[1], 0.0f);
  EXPECT_EQ(out[2], 2e30f);
  EXPECT_EQ(out[3], kInfinity);
  EXPECT_EQ(out[4], 0.0f);
  EXPECT_NEAR(out[5], 0.0, 1e-30);
  EXPECT_EQ(out[6], 0.0f);
  EXPECT_TRUE(std::isnan(out[7]));
}

// Rotation as the product of complex numbers.
TEST_P(Rows, RopeRotatesPairsInBothStyles) {
  for (const int64_t head_dim : {8, 48, 64, 80, 96, 128, 256}) {
    for (const int64_t n_rot : {int64_t{2}, head_dim / 2, head_dim - 2, head_dim}) {
      const int64_t n_heads = 3;
      const int64_t half = n_rot / 2;
      const std::vector<float> before = RandomRow(n_heads * head_dim, 7);
      std::vector<float> angles = RandomRow(half, 8, 3.0f);
      std::vector<float> table(static_cast<size_t>(n_rot));
      for (size_t i = 0; i < angles.size(); ++i) {
        table[i] = std::cos(angles[i]);
        table[i + angles.size()] = std::sin(angles[i]);
      }
      const GuardedArray<float> cos_sin(table);
      for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalves}) {
        std::vector<double> expected(before.begin(), before.end());
        std::vector<double> bound(before.size(), 0.0);
        for (int64_t head = 0; head < n_heads; ++head) {
          for (int64_t i = 0; i < half; ++i) {
            const bool interleaved = style == RopeStyle::kInterleaved;
            const size_t first = static_cast<size_t>(head * head_dim + (interleaved ? 2 * i : i));
            const size_t second = first + static_cast<size_t>(interleaved ? 1 : half);
            const size_t pair = static_cast<size_t>(i);
            const std::complex<double> rotated =
                std::complex<double>(before[first], before[second]) *
                std::complex<double>(table[pair], table[pair + angles.size()]);
            expected[first] = rotated.real();
            expected[second] = rotated.imag();
            // One rounded product and one fused operation.
            bound[first] = bound[second] =
                2 * kRounding * (std::abs(before[first]) + std::abs(before[second]));
          }
        }
        const GuardedArray<float> vectors(before);
        kernels().rope(vectors.data(), n_heads, head_dim, n_rot, style, cos_sin.data());
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(vectors[i], expected[i], bound[i])
              << "head_dim " << head_dim << ", n_rot " << n_rot << ", element " << i;
        }
        std::vector<float> reference_out = before;
        reference().rope(reference_out.data(), n_heads, head_dim, n_rot, style, cos_sin.data());
        ExpectSameBits(vectors.ToVector(), reference_out, "rope");
      }
    }
  }
}

}  // namespace
}  // namespace kvant::cpu::test
