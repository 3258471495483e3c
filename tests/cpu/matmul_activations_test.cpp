// The activation quantizer: its arithmetic against double precision, its special values, the same
// bits on every instruction set, and no access outside its groups.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "cpu/activations.h"
#include "cpu/kernels/table.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Quantized {
  std::vector<int8_t> codes;  // whole groups of 32
  std::vector<float> scales;
  std::vector<float> sums;
  std::vector<float> pair_sums;
  std::vector<int32_t> starts;
  std::vector<int32_t> pair_starts;
};

// The arrays end at guarded pages right behind the last group.
Quantized Quantize(const KernelTable& kernels, const std::vector<float>& values) {
  const size_t groups = (values.size() + 31) / 32;
  const test::GuardedArray<float> input(values);
  const test::GuardedArray<int8_t> codes(groups * 32);
  const test::GuardedArray<float> scales(groups);
  const test::GuardedArray<float> sums(groups * 2);
  const test::GuardedArray<float> pair_sums(groups);
  const test::GuardedArray<int32_t> starts(groups * 2);
  const test::GuardedArray<int32_t> pair_starts(groups);
  kernels.quantize(input.data(), static_cast<int64_t>(values.size()),
                   {codes.data(), scales.data(), sums.data(), pair_sums.data(), starts.data(),
                    pair_starts.data()});
  return {codes.ToVector(),     scales.ToVector(), sums.ToVector(),
          pair_sums.ToVector(), starts.ToVector(), pair_starts.ToVector()};
}

std::vector<float> RandomValues(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    // Groups of very different sizes.
    values[i] = normal(random) * std::ldexp(1.0f, static_cast<int>(i / 32 * 7 % 60) - 30);
  }
  return values;
}

class MatMulActivationsTest : public test::IsaTest {};

TEST_P(MatMulActivationsTest, MatchesDoublePrecision) {
  for (const size_t cols : {1, 7, 31, 32, 33, 48, 64, 172, 344, 2048}) {
    const std::vector<float> values = RandomValues(cols, 5);
    const Quantized out = Quantize(kernels(), values);
    for (size_t group = 0; group < out.scales.size(); ++group) {
      const size_t begin = group * 32;
      const size_t end = std::min(begin + 32, cols);
      float largest = 0;
      for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(values[i]));
      const float scale = largest / 127.0f;
      EXPECT_EQ(out.scales[group], scale);
      int sums[2] = {0, 0};
      for (size_t i = begin; i < begin + 32; ++i) {
        const double value = i < end ? double{values[i]} / scale : 0.0;
        // Half a step, and the rounding of the scale and of one product.
        EXPECT_NEAR(out.codes[i], value, 0.5 + 127 * 3 * test::kRounding) << "value " << i;
        EXPECT_LE(std::abs(out.codes[i]), 127);
        sums[(i - begin) / 16] += out.codes[i];
      }
      EXPECT_EQ(out.sums[2 * group], scale * static_cast<float>(sums[0]));
      EXPECT_EQ(out.sums[2 * group + 1], scale * static_cast<float>(sums[1]));
      EXPECT_EQ(out.pair_sums[group], scale * static_cast<float>(sums[0] + sums[1]));
      EXPECT_EQ(out.starts[2 * group], kDotOriginBits - 128 * sums[0]);
      EXPECT_EQ(out.starts[2 * group + 1], kDotOriginBits - 128 * sums[1]);
      EXPECT_EQ(out.pair_starts[group], kDotOriginBits - 128 * (sums[0] + sums[1]));
    }
  }
}

TEST_P(MatMulActivationsTest, RoundsTiesToEven) {
  std::vector<float> values(32, 0.0f);
  values[0] = 127.0f;  // scale 1
  values[1] = 0.5f;
  values[2] = 1.5f;
  values[3] = -2.5f;
  values[4] = -3.5f;
  const Quantized out = Quantize(kernels(), values);
  EXPECT_EQ(out.scales[0], 1.0f);
  EXPECT_EQ(std::vector<int8_t>(out.codes.begin(), out.codes.begin() + 5),
            (std::vector<int8_t>{127, 0, 2, -2, -4}));
}

TEST_P(MatMulActivationsTest, AllInstructionSetsGiveTheSameBits) {
  for (const size_t cols : {5, 64, 172, 4096}) {
    const std::vector<float> values = RandomValues(cols, 11);
    const Quantized out = Quantize(kernels(), values);
    const Quantized expected = Quantize(reference(), values);
    EXPECT_EQ(out.codes, expected.codes);
    test::ExpectSameBits(out.scales, expected.scales, "scales");
    test::ExpectSameBits(out.sums, expected.sums, "sums");
    test::ExpectSameBits(out.pair_sums, expected.pair_sums, "pair sums");
    EXPECT_EQ(out.starts, expected.starts);
    EXPECT_EQ(out.pair_starts, expected.pair_starts);
  }
}

TEST_P(MatMulActivationsTest, ZeroGroupsHaveZeroScale) {
  for (const float value : {0.0f, -0.0f, 1e-40f, 1e-31f}) {
    const Quantized out = Quantize(kernels(), std::vector<float>(40, value));
    EXPECT_EQ(out.codes, std::vector<int8_t>(64, 0));
    test::ExpectSameBits(out.scales, std::vector<float>(2, 0.0f), "scales");
    test::ExpectSameBits(out.sums, std::vector<float>(4, 0.0f), "sums");
  }
}

TEST_P(MatMulActivationsTest, SmallestAndLargestGroupsAreExact) {
  for (const float value : {1e-30f, std::numeric_limits<float>::max()}) {
    const Quantized out = Quantize(kernels(), std::vector<float>(32, value));
    EXPECT_EQ(out.codes, std::vector<int8_t>(32, 127));
    EXPECT_EQ(out.scales[0], value / 127.0f);
  }
}

TEST_P(MatMulActivationsTest, NanAndInfinityStayVisibleInTheirGroup) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> values = RandomValues(96, 3);
    values[40] = bad;
    const Quantized out = Quantize(kernels(), values);
    EXPECT_FALSE(std::isnan(out.scales[0]));
    EXPECT_TRUE(std::isnan(out.scales[1]));
    EXPECT_TRUE(std::isnan(out.sums[2]) && std::isnan(out.sums[3]));
    EXPECT_FALSE(std::isnan(out.scales[2]));
    for (size_t i = 32; i < 64; ++i) EXPECT_EQ(out.codes[i], 0);
  }
}

TEST_P(MatMulActivationsTest, PartsOfARowEqualTheWholeRow) {
  constexpr int64_t kCols = 224;
  const std::vector<float> values = RandomValues(kCols, 17);
  std::vector<std::byte> whole(ActivationRowBytes(kCols) + 64);
  std::vector<std::byte> parts(whole.size());
  const ActivationRow whole_row = ActivationRowAt(whole.data(), kCols);
  const ActivationRow row = ActivationRowAt(parts.data(), kCols);
  kernels().quantize(values.data(), kCols, whole_row);
  // The last part first: the others must leave it alone.
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{160, 224}, {32, 160}, {0, 32}}) {
    kernels().quantize(values.data() + begin, end - begin, row.From(begin));
  }
  EXPECT_EQ(parts, whole);
}

TEST(ActivationRowTest, ArraysLieApartInOneRecord) {
  for (const int64_t cols : {1, 32, 100, 256, 300, 2048, 11008}) {
    const size_t bytes = ActivationRowBytes(cols);
    EXPECT_EQ(bytes % 64, 0u);
    std::vector<std::byte> record(bytes);
    const ActivationRow row = ActivationRowAt(record.data(), cols);
    const auto offset = [&](const void* p) {
      return static_cast<size_t>(static_cast<const std::byte*>(p) - record.data());
    };
    EXPECT_EQ(offset(row.codes), 0u);
    EXPECT_GE(offset(row.scales), static_cast<size_t>((cols + 63) / 64 * 64));
    EXPECT_GE(offset(row.sums), offset(row.scales) + static_cast<size_t>((cols + 31) / 32) * 4);
    const size_t groups = static_cast<size_t>((cols + 31) / 32) * 2;
    EXPECT_GE(offset(row.pair_sums), offset(row.sums) + groups * 4);
    EXPECT_GE(offset(row.starts), offset(row.pair_sums) + groups * 2);
    EXPECT_GE(offset(row.pair_starts), offset(row.starts) + groups * 4);
    EXPECT_GE(bytes, offset(row.pair_starts) + groups * 2);
    for (const void* array :
         {static_cast<const void*>(row.scales), static_cast<const void*>(row.sums),
          static_cast<const void*>(row.pair_sums), static_cast<const void*>(row.starts),
          static_cast<const void*>(row.pair_starts)}) {
      EXPECT_EQ(offset(array) % 64, 0u);
    }
  }
}

KVANT_FOR_EACH_ISA(MatMulActivationsTest);

}  // namespace
}  // namespace kvant::cpu
