// Encoders by the errors they leave: against ggml's encoders on stored rows, against an exhaustive
// search, between formats, and on inputs at the edges of the number range.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/half.h"
#include "quant/format.h"
#include "tests/quant/fixtures.h"
#include "tests/quant/round_trip.h"

namespace kvant::quant {
namespace {

constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<std::byte> Encode(const FormatTraits& format, const std::vector<float>& values,
                              const float* importance = nullptr) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::byte> blocks(static_cast<size_t>(format.row_bytes(count)));
  format.encode(values.data(), importance, blocks.data(), count);
  return blocks;
}

std::vector<float> Decode(const FormatTraits& format, const std::vector<std::byte>& blocks) {
  std::vector<float> values(blocks.size() / static_cast<size_t>(format.block_bytes) *
                            static_cast<size_t>(format.block_values));
  format.decode(blocks.data(), values.data(), static_cast<int64_t>(values.size()));
  return values;
}

// Root mean square of the differences, each weighted by its column's importance.
double Rmse(const std::vector<float>& a, const std::vector<float>& b,
            const std::vector<float>& importance = {1.0f}) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - b[i];
    sum += importance[i % importance.size()] * difference * difference;
  }
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// Repeats a row's importance for every row of `count` values.
std::vector<float> Tile(const std::vector<float>& importance, size_t count) {
  std::vector<float> tiled(count);
  for (size_t i = 0; i < count; ++i) tiled[i] = importance[i % importance.size()];
  return tiled;
}

TEST(Encode, LeavesNoMoreErrorThanGgml) {
  const nlohmann::json fixture = test::ReadQuantFixture("encode_errors.json");
  const std::vector<float> importance = test::ParseFloats(fixture["importance"]);
  for (const auto& [distribution, errors] : fixture["rmse"].items()) {
    const std::vector<float> rows = test::ParseFloats(fixture["rows"][distribution]);
    const std::vector<float> weights = Tile(importance, rows.size());
    ASSERT_EQ(errors.size(), 22u);
    for (const auto& [name, ggml] : errors.items()) {
      const FormatTraits& format = *FindFormat(name);
      EXPECT_LE(Rmse(RoundTrip(format, rows), rows), ggml["plain"].get<double>())
          << name << ' ' << distribution;
      EXPECT_LE(Rmse(RoundTrip(format, rows, weights.data()), rows, importance),
                ggml["weighted"].get<double>())
          << name << ' ' << distribution << ", weighted";
    }
  }
}

// Encodes and decodes rows of `columns` values; every row may have a factor of its own.
std::vector<float> RoundTripRows(const FormatTraits& format, const std::vector<float>& values,
                                 size_t columns, const float* importance) {
  std::vector<float> decoded;
  for (size_t begin = 0; begin < values.size(); begin += columns) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
    const std::vector<float> row(first, first + static_cast<std::ptrdiff_t>(columns));
    const std::vector<float> of_row = RoundTrip(format, row, importance);
    decoded.insert(decoded.end(), of_row.begin(), of_row.end());
  }
  return decoded;
}

TEST(Encode, LeavesNoMoreErrorThanIkLlama) {
  const nlohmann::json inputs = test::ReadQuantFixture("encode_errors.json");
  const nlohmann::json fixture = test::ReadQuantFixture("encode_errors_ik.json");
  const std::vector<float> importance = test::ParseFloats(inputs["importance"]);
  for (const auto& [distribution, errors] : fixture.items()) {
    const std::vector<float> rows = test::ParseFloats(inputs["rows"][distribution]);
    ASSERT_EQ(errors.size(), 21u);
    for (const auto& [name, ik] : errors.items()) {
      const FormatTraits& format = *FindFormat(name);
      const auto columns = static_cast<size_t>(inputs["columns"]);
      EXPECT_LE(Rmse(RoundTripRows(format, rows, columns, nullptr), rows),
                ik["plain"].get<double>())
          << name << ' ' << distribution;
      EXPECT_LE(Rmse(RoundTripRows(format, rows, columns, importance.data()), rows, importance),
                ik["weighted"].get<double>())
          << name << ' ' << distribution << ", weighted";
    }
  }
}

TEST(Encode, ImportanceLowersTheWeightedError) {
  const nlohmann::json fixture = test::ReadQuantFixture("encode_errors.json");
  const std::vector<float> importance = test::ParseFloats(fixture["importance"]);
  const std::vector<float> rows = test::ParseFloats(fixture["rows"]["laplace"]);
  const std::vector<float> weights = Tile(importance, rows.size());
  for (const FormatTraits& format : AllFormats()) {
    const double plain = Rmse(RoundTrip(format, rows), rows, importance);
    const double weighted = Rmse(RoundTrip(format, rows, weights.data()), rows, importance);
    // Q8_0 and the float formats round to nearest and leave nothing to weigh; a power of two, or
    // one scale for 256 ternary values, leave little.
    const std::string name = format.name;
    const bool searched = format.quantized() && format.bits_per_value() < 8;
    const bool coarse = name == "MXFP4" || name == "TQ1_0" || name == "TQ2_0" || name == "Q1_0" ||
                        name.ends_with("_BN");
    EXPECT_LE(weighted, searched && !coarse ? 0.98 * plain : plain) << format.name;
  }
}

// Against every quantized format, one with at least 0.8 bits more leaves less error.
void ExpectErrorFallsAsBitsRise(const std::vector<float>& values) {
  for (const FormatTraits& small : AllFormats()) {
    for (const FormatTraits& large : AllFormats()) {
      if (!small.quantized() || large.bits_per_value() < small.bits_per_value() + 0.8) continue;
      EXPECT_LT(Rmse(RoundTrip(large, values), values), Rmse(RoundTrip(small, values), values))
          << large.name << " against " << small.name;
    }
  }
}

TEST(Encode, ErrorFallsAsBitsRise) {
  const nlohmann::json fixture = test::ReadQuantFixture("encode_errors.json");
  ExpectErrorFallsAsBitsRise(test::ParseFloats(fixture["rows"]["gaussian"]));
  ExpectErrorFallsAsBitsRise(test::ParseFloats(fixture["rows"]["laplace"]));
}

TEST(Encode, ErrorFallsAsBitsRiseOnTrainedWeights) {
  const std::string path = test::SharedPath("models/tinystories-656k/model.safetensors");
  KVANT_SKIP_WITHOUT(path);
  std::ifstream file(path, std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  std::string header(header_bytes, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header_bytes));
  const nlohmann::json tensors = nlohmann::json::parse(header);
  const auto& tensor = tensors["model.layers.0.self_attn.q_proj.weight"];
  ASSERT_EQ(tensor["dtype"], "F32");
  const auto begin = tensor["data_offsets"][0].get<uint64_t>();
  std::vector<float> values((tensor["data_offsets"][1].get<uint64_t>() - begin) / 4);
  values.resize(std::min<size_t>(values.size() / 256 * 256, 4096));
  file.seekg(static_cast<std::streamoff>(8 + header_bytes + begin));
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(4 * values.size()));
  ASSERT_TRUE(file.good());
  ExpectErrorFallsAsBitsRise(values);
}

// The weights of values that count by their magnitudes, 6 m + x^2 with m the mean of a block's
// squares; else all 1.
std::vector<double> MagnitudeWeights(const std::vector<float>& values, size_t block, bool counts) {
  std::vector<double> weights(values.size(), 1.0);
  for (size_t begin = 0; counts && begin < values.size(); begin += block) {
    double mean = 0;
    for (size_t i = begin; i < begin + block; ++i) mean += double{values[i]} * values[i];
    mean /= static_cast<double>(block);
    for (size_t i = begin; i < begin + block; ++i) {
      weights[i] = 6 * mean + double{values[i]} * values[i];
    }
  }
  return weights;
}

double WeightedError(const std::vector<float>& a, const std::vector<float>& b,
                     const std::vector<double>& weights) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += weights[i] * std::pow(double{a[i]} - b[i], 2);
  return sum;
}

// The least weighted squared error of scale * code over all scales of both signs: between two
// neighbouring scales at which some code changes, the codes are fixed and the best scale is a
// division.
double LeastSquaredError(const float* values, const double* weights, int count, int code_min,
                         int code_max) {
  double energy = 0;
  double gain = 0;
  for (int i = 0; i < count; ++i) energy += weights[i] * values[i] * values[i];
  for (const double sign : {-1.0, 1.0}) {
    std::vector<double> changes;  // inverse scales
    for (int i = 0; i < count; ++i) {
      for (int code = code_min; code < code_max; ++code) {
        const double inverse = (code + 0.5) / (sign * values[i]);
        if (inverse > 0) changes.push_back(inverse);
      }
    }
    std::sort(changes.begin(), changes.end());
    changes.push_back(2 * changes.back());
    for (size_t k = 0; k + 1 < changes.size(); ++k) {
      const double inverse = sign * (changes[k] + changes[k + 1]) / 2;
      double value_code = 0;
      double code_code = 0;
      for (int i = 0; i < count; ++i) {
        const double code =
            std::clamp(std::nearbyint(values[i] * inverse), static_cast<double>(code_min),
                       static_cast<double>(code_max));
        value_code += weights[i] * values[i] * code;
        code_code += weights[i] * code * code;
      }
      if (code_code > 0) gain = std::max(gain, value_code * value_code / code_code);
    }
  }
  return energy - gain;
}

TEST(Encode, OneScaleFormatsAreNearTheExhaustiveOptimum) {
  constexpr int kValues = 32;
  const std::vector<float> values = Gaussian(100 * kValues, 11);
  struct Case {
    const char* name;
    int code_min, code_max;
    bool magnitudes_count;
    double ratio;  // 1 + what the finite number of starts and the rounding of d may cost
  };
  for (const Case& c : {Case{"Q4_0", -8, 7, true, 1.015}, Case{"Q5_0", -16, 15, false, 1.035}}) {
    const std::vector<double> weights = MagnitudeWeights(values, kValues, c.magnitudes_count);
    double optimum = 0;
    for (size_t i = 0; i < values.size(); i += kValues) {
      optimum +=
          LeastSquaredError(values.data() + i, weights.data() + i, kValues, c.code_min, c.code_max);
    }
    const double squared_error =
        WeightedError(RoundTrip(*FindFormat(c.name), values), values, weights);
    EXPECT_GE(squared_error, optimum) << c.name;
    EXPECT_LE(squared_error, c.ratio * optimum) << c.name;
  }
}

// Where magnitudes count, the error so weighted is less than that of the plain convention, which
// gives the block's or group's peak the far end of the codes; and for Q4_0, where they count only
// without importance, less than with equal importances, which leave less plain error.
TEST(Encode, MagnitudesCountInQ4_0AndQ3_K) {
  const nlohmann::json fixture = test::ReadQuantFixture("encode_errors.json");
  for (const char* distribution : {"gaussian", "laplace"}) {
    const std::vector<float> values = test::ParseFloats(fixture["rows"][distribution]);
    struct Case {
      const char* name;
      size_t block, group;
      double far_end;
    };
    for (const Case& c : {Case{"Q4_0", 32, 32, 8}, Case{"Q3_K", 256, 16, 4}}) {
      const FormatTraits& format = *FindFormat(c.name);
      const std::vector<double> weights = MagnitudeWeights(values, c.block, true);
      const double error = WeightedError(RoundTrip(format, values), values, weights);
      std::vector<float> convention(values.size());
      for (size_t begin = 0; begin < values.size(); begin += c.group) {
        float peak = 0;
        for (size_t i = begin; i < begin + c.group; ++i) {
          if (std::fabs(values[i]) > std::fabs(peak)) peak = values[i];
        }
        const double scale = -peak / c.far_end;
        for (size_t i = begin; i < begin + c.group; ++i) {
          const double code =
              std::clamp(std::nearbyint(values[i] / scale), -c.far_end, c.far_end - 1);
          convention[i] = static_cast<float>(scale * code);
        }
      }
      EXPECT_LT(error, 0.95 * WeightedError(convention, values, weights)) << c.name;
      if (std::string(c.name) == "Q4_0") {
        // With equal importances magnitudes do not count; the weighted search has more starts.
        const std::vector<float> ones(values.size(), 1.0f);
        const std::vector<float> plain = RoundTrip(format, values, ones.data());
        EXPECT_LT(error, WeightedError(plain, values, weights));
        EXPECT_LT(Rmse(plain, values), Rmse(RoundTrip(format, values), values));
      }
    }
  }
}

TEST(Encode, Q8_0RoundsToTheNearestOf255Steps) {
  const std::vector<float> values = Gaussian(3200, 12);
  const std::vector<float> decoded = RoundTrip(*FindFormat("Q8_0"), values);
  for (size_t begin = 0; begin < values.size(); begin += 32) {
    float peak = 0;
    for (size_t i = begin; i < begin + 32; ++i) peak = std::max(peak, std::fabs(values[i]));
    const float d = F16ToF32(F32ToF16(peak / 127));
    for (size_t i = begin; i < begin + 32; ++i) {
      EXPECT_LE(std::fabs(decoded[i] - values[i]), 0.5001f * d + 0.0005f * peak);
    }
  }
}

// Formats without offsets promise to keep values that they have produced: for Q8_0 the bytes, for
// the others the values of blocks whose codes reach an end of their range.
TEST(Encode, KeepsDecodedValues) {
  const std::vector<float> values = Gaussian(64000, 13);
  const FormatTraits& q8_0 = *FindFormat("Q8_0");
  const std::vector<std::byte> blocks = Encode(q8_0, values);
  EXPECT_EQ(Encode(q8_0, Decode(q8_0, blocks)), blocks);

  std::mt19937 random(14);
  for (const int bits : {4, 5}) {
    const FormatTraits& format = *FindFormat(bits == 4 ? "Q4_0" : "Q5_0");
    const int end = 1 << (bits - 1);
    for (int trial = 0; trial < 2000; ++trial) {
      const float d = F16ToF32(static_cast<uint16_t>((random() & 0x83ff) | 0x2400));
      std::vector<float> exact(32);
      for (float& value : exact) {
        value = d * static_cast<float>(static_cast<int>(random() % (2 * end - 1)) - end + 1);
      }
      exact[random() % 32] = d * static_cast<float>(trial % 2 == 0 ? -end : end - 1);
      EXPECT_EQ(RoundTrip(format, exact), exact) << format.name << " trial " << trial;
    }
  }
  for (const char* name : {"F32", "F16", "BF16"}) {
    const FormatTraits& format = *FindFormat(name);
    const std::vector<float> once = RoundTrip(format, values);
    EXPECT_EQ(RoundTrip(format, once), once) << name;
  }
}

TEST(Encode, FloatFormatsFollowIeee) {
  const std::vector<float> values = {0.0f, -0.0f, 1.0f / 3, 65519.0f, 65520.0f, -kInfinity,
                                     kNan, 1e-7f, 1e-40f,   kMax,     -1.5f};
  const std::vector<float> f32 = RoundTrip(*FindFormat("F32"), values);
  EXPECT_EQ(std::memcmp(f32.data(), values.data(), 4 * values.size()), 0);
  const std::vector<float> f16 = RoundTrip(*FindFormat("F16"), values);
  EXPECT_EQ(f16[2], 0.333251953125f);
  EXPECT_EQ(f16[3], 65504.0f);
  EXPECT_EQ(f16[4], kInfinity);
  EXPECT_EQ(f16[5], -kInfinity);
  EXPECT_TRUE(std::isnan(f16[6]));
  EXPECT_EQ(f16[7], 0x1p-23f);
  EXPECT_EQ(f16[8], 0.0f);
  const std::vector<float> bf16 = RoundTrip(*FindFormat("BF16"), values);
  EXPECT_EQ(bf16[2], 0.333984375f);
  EXPECT_EQ(bf16[9], kInfinity);
  EXPECT_EQ(bf16[10], -1.5f);
  EXPECT_TRUE(std::signbit(bf16[1]));
}

// A block of `format` made of a repeated pattern.
std::vector<float> Pattern(const FormatTraits& format, const std::vector<float>& pattern) {
  return Tile(pattern, static_cast<size_t>(format.block_values));
}

// How near a constant comes: formats whose scales are no halves have few numbers.
double ConstantTolerance(const FormatTraits& format) {
  if (std::string(format.name) == "MXFP4") return 0.21;
  if (std::string(format.name) == "NVFP4") return 0.03;
  // No eight or four numbers of a generator are equal; the nearest ones are so far apart.
  if (std::string(format.name) == "IQ1_KT") return 0.6;
  if (std::string(format.name) == "IQ2_KT") return 0.5;
  if (std::string(format.name) == "IQ3_KT") return 0.3;
  if (std::string(format.name) == "IQ4_KT") return 0.2;
  return 2e-3;
}

// The largest magnitude of NVFP4; formats with half-precision scales hold at least the largest
// half.
constexpr float kNvfp4Max = 448.0f * 6;

float LargestSure(const FormatTraits& format) {
  return std::string(format.name) == "NVFP4" ? kNvfp4Max : 65504.0f;
}

// Constants are kept but for the rounding of the half d, which is a fixed step where d is subnormal
// and then counts 32 * 128 times in Q6_K.
TEST(Encode, ZerosAndConstantsAreKept) {
  for (const FormatTraits& format : AllFormats()) {
    if (!format.quantized()) continue;
    const std::vector<float> zeros = Pattern(format, {0.0f, -0.0f});
    for (const float value : RoundTrip(format, zeros)) EXPECT_EQ(value, 0.0f) << format.name;
    for (const float constant : {0.75f, -0.75f, 1e4f, -3e-2f}) {
      if (constant > LargestSure(format)) continue;
      const std::vector<float> same = Pattern(format, {constant});
      for (const float value : RoundTrip(format, same)) {
        EXPECT_NEAR(value, constant,
                    ConstantTolerance(format) * std::fabs(constant) + 0x1p-25 * 32 * 128)
            << format.name;
      }
    }
  }
}

TEST(Encode, TinyValuesKeepTheirMagnitudeOrBecomeZero) {
  for (const FormatTraits& format : AllFormats()) {
    if (!format.quantized()) continue;
    for (const float value : RoundTrip(format, Pattern(format, {1e-40f, -2e-39f, 1e-20f}))) {
      // A factor of a row is a float, and holds what no half does.
      EXPECT_LE(std::fabs(value), format.head_bytes >= 4 ? 2e-20f : 0.0f) << format.name;
    }
    // Scales below the smallest half: errors stay about as small as that half, or where codes are
    // far apart, as small as the values.
    const bool codebook = static_cast<uint32_t>(format.type) >= 16;
    const std::vector<float> tiny = Pattern(format, {3e-7f, -1e-7f, 0.0f, 2e-7f});
    const std::vector<float> decoded = RoundTrip(format, tiny);
    for (size_t i = 0; i < tiny.size(); ++i) {
      EXPECT_LE(std::fabs(decoded[i] - tiny[i]), codebook ? 3e-7f : 0x1.1p-24f)
          << format.name << ' ' << tiny[i];
    }
  }
}

TEST(Encode, HugeValuesSaturate) {
  for (const FormatTraits& format : AllFormats()) {
    if (!format.quantized()) continue;
    const std::vector<float> huge = Pattern(format, {kMax, -kMax, 1e30f, -3e38f, 5.0f});
    const std::vector<float> decoded = RoundTrip(format, huge);
    for (size_t i = 0; i < huge.size(); ++i) {
      EXPECT_TRUE(std::isfinite(decoded[i])) << format.name;
      if (std::fabs(huge[i]) > 1e37f) {
        EXPECT_GE(decoded[i] * std::copysign(1.0f, huge[i]), LargestSure(format)) << format.name;
      }
    }
  }
}

TEST(Encode, NonFiniteValuesHaveDefinedResults) {
  for (const FormatTraits& format : AllFormats()) {
    if (!format.quantized()) continue;
    // NaN is 0, and does not disturb its neighbours.
    std::vector<float> values = Gaussian(static_cast<size_t>(format.block_values), 15);
    std::vector<float> with_zero = values;
    with_zero[5] = 0;
    values[5] = kNan;
    EXPECT_EQ(Encode(format, values), Encode(format, with_zero)) << format.name;
    // Infinity is the largest float.
    std::vector<float> with_max = with_zero;
    values[5] = kInfinity;
    with_max[5] = kMax;
    EXPECT_EQ(Encode(format, values), Encode(format, with_max)) << format.name;
  }
}

TEST(Encode, UnusableImportanceCountsAsZero) {
  const std::vector<float> values = Gaussian(256, 16);
  std::vector<float> zeros(256, 0.0f);
  const std::vector<float> ones(256, 1.0f);
  std::vector<float> odd = ones;
  std::vector<float> clean = odd;
  const float unusable[] = {kNan, kInfinity, -1.0f, -kInfinity};
  for (size_t i = 0; i < 4; ++i) {
    odd[17 * i] = unusable[i];
    clean[17 * i] = 0;
  }
  for (const FormatTraits& format : AllFormats()) {
    EXPECT_EQ(Encode(format, values, zeros.data()), Encode(format, values, ones.data()))
        << format.name;
    EXPECT_EQ(Encode(format, values, odd.data()), Encode(format, values, clean.data()))
        << format.name;
  }
}

// Any bits as input, values and importance alike: no undefined behaviour, and finite results.
TEST(Encode, TakesAnyBits) {
  std::mt19937 random(17);
  std::vector<float> values(2560);
  std::vector<float> importance(2560);
  for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (float& value : importance) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (const FormatTraits& format : AllFormats()) {
    if (!format.quantized()) continue;
    for (const float value : RoundTrip(format, values, importance.data())) {
      EXPECT_TRUE(std::isfinite(value)) << format.name;
    }
  }
}

}  // namespace
}  // namespace kvant::quant
