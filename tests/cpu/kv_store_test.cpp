// Writing keys and values into the cache: layout, rounding to F16, and reading F16 back.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "base/half.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu::test {
namespace {

class KvStore : public IsaTest {};
KVANT_FOR_EACH_ISA(KvStore);

constexpr float kF16Max = 65504.0f;

std::vector<uint16_t> StoredAsF16(const KernelTable& kernels, const std::vector<float>& values) {
  const GuardedArray<float> source(values);
  const GuardedArray<uint16_t> row(values.size());
  kernels.store_value(source.data(), static_cast<int64_t>(values.size()), KvType::kF16, 0,
                      reinterpret_cast<std::byte*>(row.data()), nullptr);
  return row.ToVector();
}

TEST_P(KvStore, EveryF16ValueSurvives) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    values.push_back(F16ToF32(static_cast<uint16_t>(bits)));
  }
  const std::vector<uint16_t> stored = StoredAsF16(kernels(), values);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if (std::isnan(values[bits])) {
      EXPECT_TRUE(std::isnan(F16ToF32(stored[bits]))) << bits;
    } else if (std::isinf(values[bits])) {
      EXPECT_EQ(F16ToF32(stored[bits]), std::copysign(kF16Max, values[bits]));
    } else {
      ASSERT_EQ(stored[bits], bits);
    }
  }
}

// The value halfway between two neighbours goes to the even one, and the floats next to it to the
// nearer one.
TEST_P(KvStore, RoundsToNearestEven) {
  std::vector<float> values;
  std::vector<uint16_t> expected;
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const uint16_t next = static_cast<uint16_t>(bits + 1);
    const float halfway = (F16ToF32(bits) + F16ToF32(next)) / 2;  // exact
    values.push_back(halfway);
    expected.push_back(bits % 2 == 0 ? bits : next);
    values.push_back(std::nextafter(halfway, 0.0f));
    expected.push_back(bits);
    values.push_back(-std::nextafter(halfway, kF16Max));
    expected.push_back(static_cast<uint16_t>(next | 0x8000u));
  }
  EXPECT_EQ(StoredAsF16(kernels(), values), expected);
}

TEST_P(KvStore, ClampsToTheFiniteRange) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {65519.0f, 65520.0f, 1e30f, kInfinity, -1e30f, -kInfinity};
  const std::vector<uint16_t> expected = {0x7bff, 0x7bff, 0x7bff, 0x7bff, 0xfbff, 0xfbff};
  EXPECT_EQ(StoredAsF16(kernels(), values), expected);
}

TEST_P(KvStore, AgreesWithTheScalarConversionOnAnyBits) {
  std::mt19937 generator(1);
  std::vector<float> values;
  std::vector<uint16_t> expected;
  for (int i = 0; i < 200'003; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(generator()));
    if (std::isnan(value)) continue;
    values.push_back(value);
    expected.push_back(F32ToF16(std::clamp(value, -kF16Max, kF16Max)));
  }
  EXPECT_EQ(StoredAsF16(kernels(), values), expected);
}

TEST_P(KvStore, ValuesOfAnyLengthFillTheirRowOnly) {
  for (const size_t v_dim : {1u, 7u, 8u, 48u, 63u, 80u, 128u}) {
    std::vector<float> values(v_dim);
    for (size_t i = 0; i < v_dim; ++i) values[i] = static_cast<float>(i) - 3.5f;
    const std::vector<uint16_t> halves = StoredAsF16(kernels(), values);
    const GuardedArray<float> row(v_dim);
    kernels().store_value(values.data(), static_cast<int64_t>(v_dim), KvType::kF32, 0,
                          reinterpret_cast<std::byte*>(row.data()), nullptr);
    for (size_t i = 0; i < v_dim; ++i) {
      EXPECT_EQ(F16ToF32(halves[i]), values[i]);
      EXPECT_EQ(row[i], values[i]);
    }
  }
}

template <class Element>
void ExpectKeyInItsColumn(const KernelTable& kernels, KvType element, size_t k_dim) {
  std::vector<float> values(k_dim);
  for (size_t d = 0; d < k_dim; ++d) values[d] = static_cast<float>(d) + 0.25f;
  const GuardedArray<float> key(values);
  for (int slot = 0; slot < kKeyTileTokens; ++slot) {
    const GuardedArray<Element> tile(k_dim * kKeyTileTokens);
    std::fill(tile.begin(), tile.end(), Element{77});
    kernels.store_key(key.data(), static_cast<int64_t>(k_dim), element, slot,
                      reinterpret_cast<std::byte*>(tile.data()), nullptr);
    for (size_t i = 0; i < tile.size(); ++i) {
      const float wanted = values[i / kKeyTileTokens];
      const bool written = i % kKeyTileTokens == static_cast<size_t>(slot);
      Element expected{77};
      if (written) {
        if constexpr (std::is_same_v<Element, float>) {
          expected = wanted;
        } else {
          expected = F32ToF16(wanted);
        }
      }
      ASSERT_EQ(tile[i], expected) << "k_dim " << k_dim << ", slot " << slot << ", element " << i;
    }
  }
}

TEST_P(KvStore, AKeyFillsItsColumnOnly) {
  for (const size_t k_dim : {8u, 48u, 60u, 64u, 80u, 128u}) {
    ExpectKeyInItsColumn<float>(kernels(), KvType::kF32, k_dim);
    ExpectKeyInItsColumn<uint16_t>(kernels(), KvType::kF16, k_dim);
  }
}

// Codes and scales against the definition in double precision, places against the documented
// layout; nothing else is written.
// Rows of keys, some floats apart, become columns of a tile, for any number of either; nothing
// behind the rows is read, nothing behind the tile written.
TEST_P(KvStore, LaysOutKeysOfAnyNumber) {
  for (const int64_t dim : {1, 3, 4, 15, 16, 17, 48, 64, 100}) {
    for (int64_t count = 1; count <= kKeyTileTokens; ++count) {
      const int64_t stride = dim + 5;
      const GuardedArray<float> keys(static_cast<size_t>((count - 1) * stride + dim));
      for (size_t i = 0; i < keys.size(); ++i) keys.data()[i] = static_cast<float>(i) + 0.5f;
      const GuardedArray<float> tile(static_cast<size_t>(dim * kKeyTileTokens));
      kernels().lay_out_keys(keys.data(), stride, count, dim, tile.data());
      for (int64_t d = 0; d < dim; ++d) {
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(tile.data()[d * kKeyTileTokens + i], static_cast<float>(i * stride + d) + 0.5f)
              << dim << " " << count;
        }
      }
    }
  }
}

TEST_P(KvStore, Q8CodesAreNearestAndInTheirPlaces) {
  std::mt19937 generator(3);
  for (const int dim : {1, 2, 6, 8, 48, 63, 64, 80, 128, 256}) {
    for (int slot = 0; slot < kKeyTileTokens; ++slot) {
      std::vector<float> values(static_cast<size_t>(dim));
      const float magnitude = std::ldexp(1.0f, static_cast<int>(generator() % 60) - 30);
      for (float& v : values) v = magnitude * (static_cast<float>(generator()) * 0x1p-31f - 1.0f);
      const GuardedArray<float> source(values);
      const GuardedArray<uint8_t> tile(KvKeyTileBytes(KvType::kQ8, dim));
      const GuardedArray<int8_t> group(KvValueTileBytes(KvType::kQ8, dim));
      std::fill(tile.begin(), tile.end(), uint8_t{1});
      std::fill(group.begin(), group.end(), int8_t{1});
      float key_scale = -1.0f;
      float value_scale = -1.0f;
      const int value_slot = slot % kValueTileTokens;
      kernels().store_key(source.data(), dim, KvType::kQ8, slot,
                          reinterpret_cast<std::byte*>(tile.data()), &key_scale);
      kernels().store_value(source.data(), dim, KvType::kQ8, value_slot,
                            reinterpret_cast<std::byte*>(group.data()), &value_scale);
      double absmax = 0.0;
      for (const float v : values) absmax = std::max(absmax, std::abs(static_cast<double>(v)));
      ASSERT_NEAR(key_scale, absmax / 127.0, 1e-7 * absmax);
      ASSERT_EQ(value_scale, key_scale);
      for (size_t i = 0; i < tile.size(); ++i) {
        const size_t d = i / (4 * kKeyTileTokens) * 4 + i % 4;
        if (static_cast<int>(i / 4 % kKeyTileTokens) != slot) {
          ASSERT_EQ(tile[i], 1);
        } else if (d >= values.size()) {
          ASSERT_EQ(tile[i], 128);
        } else {
          ASSERT_NEAR(tile[i] - 128, values[d] * 127.0 / absmax, 0.5 + 1e-4);
        }
      }
      for (size_t i = 0; i < group.size(); ++i) {
        const bool written = static_cast<int>(i % kValueTileTokens) == value_slot;
        if (!written) {
          ASSERT_EQ(group[i], 1);
        } else {
          ASSERT_NEAR(group[i], values[i / kValueTileTokens] * 127.0 / absmax, 0.5 + 1e-4);
        }
      }
    }
  }
}

TEST_P(KvStore, Q8OfZerosIsZeroAndWhatIsNotFiniteStaysVisible) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const float odd : {0.0f, 1e-38f, kInfinity, -kInfinity, kNan}) {
    std::vector<float> values(20, 0.0f);
    values[7] = odd;
    std::vector<std::byte> group(KvValueTileBytes(KvType::kQ8, 20), std::byte{5});
    float scale = -1.0f;
    kernels().store_value(values.data(), 20, KvType::kQ8, 1, group.data(), &scale);
    if (std::abs(odd) < 1.0f) {
      EXPECT_EQ(scale, 0.0f);
    } else {
      EXPECT_TRUE(std::isnan(scale)) << odd;
    }
    for (size_t d = 0; d < 20; ++d) EXPECT_EQ(group[d * kValueTileTokens + 1], std::byte{0});
  }
}

// The rotation against the matrix, and twice against the vector itself.
TEST_P(KvStore, RotationIsTheHadamardMatrixAndItsOwnInverse) {
  std::mt19937 generator(4);
  for (const int64_t dim : {1, 6, 8, 16, 48, 64, 80, 96, 128, 256}) {
    std::vector<float> values(static_cast<size_t>(3 * dim));
    for (float& v : values) v = static_cast<float>(generator()) * 0x1p-31f - 1.0f;
    const GuardedArray<float> rotated(values);
    kernels().rotate(rotated.data(), 3, dim);
    const size_t order = static_cast<size_t>(dim & -dim);
    for (size_t i = 0; i < values.size(); ++i) {
      double expected = 0.0;
      for (size_t j = 0; j < order; ++j) {
        const bool negative = std::popcount((i % order) & j) % 2 == 1;
        expected += (negative ? -1.0 : 1.0) * values[i / order * order + j];
      }
      ASSERT_NEAR(rotated[i], expected / std::sqrt(static_cast<double>(order)), 1e-5);
    }
    const std::vector<float> once = rotated.ToVector();
    std::vector<float> by_reference = values;
    reference().rotate(by_reference.data(), 3, dim);
    ExpectSameBits(once, by_reference, "reference");
    kernels().rotate(rotated.data(), 3, dim);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(rotated[i], values[i], 1e-5);
  }
}

// Attention to a single position gives its value back unchanged, which shows how F16 is read.
TEST_P(KvStore, EveryF16ValueIsReadExactly) {
  constexpr int kValues = 0x10000;
  const GuardedArray<uint16_t> values(kValues);
  for (size_t bits = 0; bits < kValues; ++bits) values[bits] = static_cast<uint16_t>(bits);
  const GuardedArray<float> keys(kKeyTileTokens);
  const float query = 0.0f;
  const GuardedArray<float> out(kValues);
  const int64_t position = 0;
  const KvRun run = {reinterpret_cast<const std::byte*>(keys.data()),
                     reinterpret_cast<const std::byte*>(values.data()), 0, 1};
  std::vector<std::byte> scratch(
      kernels().attention_scratch_bytes(1, 1, 1, kValues, KeyForm::kStored));
  kernels().attention({.queries = &query,
                       .query_row_stride = 1,
                       .out = out.data(),
                       .out_row_stride = kValues,
                       .rows = 1,
                       .positions = &position,
                       .heads_per_kv = 1,
                       .k_dim = 1,
                       .v_dim = kValues,
                       .k_type = KvType::kF32,
                       .v_type = KvType::kF16,
                       .scale = 1.0f,
                       .window = 0,
                       .runs = {&run, 1},
                       .scratch = scratch});
  for (size_t bits = 0; bits < kValues; ++bits) {
    const float expected = F16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(out[bits])) << bits;
    } else {
      ASSERT_EQ(out[bits], expected) << bits;
    }
  }
}

}  // namespace
}  // namespace kvant::cpu::test
