// Encoders and decoders of every instruction set against the scalar reference of the format, byte
// by byte: on ordinary and extreme rows, for any number of blocks, with and without importance.
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "cpu/kernels/blocks.h"
#include "cpu/kernels/table.h"
#include "quant/format.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu::test {
namespace {

class Encode : public IsaTest {};
KVANT_FOR_EACH_ISA(Encode);

using Row = std::vector<float>;

Row Gaussian(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  Row values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Any bits, so NaN, infinities and subnormal numbers too.
Row AnyBits(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Row values(count);
  for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  return values;
}

// Blocks whose magnitudes go from the smallest numbers to the largest.
Row AllMagnitudes(size_t count, uint32_t seed) {
  Row values = Gaussian(count, seed);
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::ldexp(values[i], static_cast<int>(i / 32 * 7 % 270) - 140);
  }
  return values;
}

Row LogNormal(size_t count, uint32_t seed) {
  Row values = Gaussian(count, seed);
  for (float& value : values) value = std::exp(75 * value);
  return values;
}

std::vector<std::byte> ByReference(const quant::FormatTraits& format, const Row& values,
                                   const float* importance, int64_t rows) {
  const auto count = static_cast<int64_t>(values.size());
  const int64_t cols = count / rows;
  std::vector<std::byte> blocks(static_cast<size_t>(rows * format.row_bytes(cols)));
  for (int64_t row = 0; row < rows; ++row) {
    format.encode(values.data() + row * cols, importance,
                  blocks.data() + row * format.row_bytes(cols), cols);
  }
  return blocks;
}

void ExpectReference(const KernelTable& kernels, const quant::FormatTraits& format,
                     const Row& values, const Row& importance, int64_t rows,
                     const std::string& what) {
  const int64_t cols = static_cast<int64_t>(values.size()) / rows;
  const EncodeFunction encode = kernels.encode[static_cast<size_t>(FormatIndex(format))];
  const GuardedArray<float> guarded_values(values);
  const GuardedArray<float> guarded_importance(importance);
  for (const float* weights :
       {static_cast<const float*>(nullptr), static_cast<const float*>(guarded_importance.data())}) {
    const std::vector<std::byte> expected = ByReference(format, values, weights, rows);
    const GuardedArray<std::byte> blocks(expected.size());
    encode({&format, guarded_values.data(), weights, rows, cols, blocks.data()});
    ASSERT_EQ(blocks.ToVector(), expected) << format.name << ", " << what << ", " << rows << " x "
                                           << cols << (weights == nullptr ? "" : ", weighted");
  }
}

TEST_P(Encode, GivesTheBytesOfTheReference) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    const size_t block = static_cast<size_t>(format.block_values);
    for (const auto& [rows, blocks] : {std::pair{1, 1}, {1, 7}, {3, 5}, {1, 16}, {2, 9}, {5, 8}}) {
      const size_t cols = block * static_cast<size_t>(blocks);
      const size_t count = cols * static_cast<size_t>(rows);
      const Row importance = LogNormal(cols, 1);
      ExpectReference(kernels(), format, Gaussian(count, 2), importance, rows, "Gaussian");
      ExpectReference(kernels(), format, AnyBits(count, 3), AnyBits(cols, 4), rows, "any bits");
      ExpectReference(kernels(), format, AllMagnitudes(count, 5), AllMagnitudes(cols, 6), rows,
                      "all magnitudes");
      ExpectReference(kernels(), format, Row(count), Row(cols), rows, "zeros");
    }
  }
}

// Blocks of different kinds side by side do not disturb each other.
TEST_P(Encode, TakesEachBlockAlone) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    const size_t block = static_cast<size_t>(format.block_values);
    Row values;
    for (uint32_t i = 0; i < 37; ++i) {
      const Row next = i % 4 == 0   ? Gaussian(block, i)
                       : i % 4 == 1 ? AnyBits(block, i)
                       : i % 4 == 2 ? Row(block, i % 8 == 2 ? 0.0f : 0.75f)
                                    : AllMagnitudes(block, i);
      values.insert(values.end(), next.begin(), next.end());
    }
    ExpectReference(kernels(), format, values, LogNormal(values.size(), 7), 1, "mixed");
  }
}

TEST_P(Encode, FloatFormatsRoundEveryExponent) {
  Row values;
  for (uint32_t high = 0; high < 0x10000; high += 5) {
    for (const uint32_t low : {0u, 0x0fffu, 0x1000u, 0x1001u, 0x8000u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    if (format.quantized()) continue;
    ExpectReference(kernels(), format, values, values, 1, "every exponent");
  }
}

TEST_P(Encode, DecodesAnyBytesLikeTheReference) {
  std::mt19937 random(8);
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int blocks : {1, 3, 16, 33, 70000}) {
      if (blocks > 33 && format.quantized()) continue;
      const auto bytes =
          static_cast<size_t>(format.row_bytes(int64_t{format.block_values} * blocks));
      const GuardedArray<std::byte> source(bytes);
      for (std::byte& byte : source) byte = static_cast<std::byte>(random());
      const int64_t count = int64_t{format.block_values} * blocks;
      Row expected(static_cast<size_t>(count));
      format.decode(source.data(), expected.data(), count);
      const GuardedArray<float> values(expected.size());
      kernels().decode[static_cast<size_t>(FormatIndex(format))](source.data(), values.data(),
                                                                 count);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_TRUE(SameBits(values[i], expected[i])) << format.name << ", value " << i;
      }
    }
  }
}

}  // namespace
}  // namespace kvant::cpu::test
