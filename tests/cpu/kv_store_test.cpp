// Writing keys and values into the cache: layout, rounding to F16, and reading F16 back.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/half.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu::test {
namespace {

class KvStore : public IsaTest {};
KVANT_FOR_EACH_ISA(KvStore);

constexpr float kF16Max = 65504.0f;

std::vector<uint16_t> StoredAsF16(const KernelTable& kernels, const std::vector<float>& values) {
  const GuardedArray<float> source(values);
  const GuardedArray<uint16_t> row(values.size());
  kernels.store_value(source.data(), static_cast<int64_t>(values.size()), KvElement::kF16,
                      reinterpret_cast<std::byte*>(row.data()));
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
    kernels().store_value(values.data(), static_cast<int64_t>(v_dim), KvElement::kF32,
                          reinterpret_cast<std::byte*>(row.data()));
    for (size_t i = 0; i < v_dim; ++i) {
      EXPECT_EQ(F16ToF32(halves[i]), values[i]);
      EXPECT_EQ(row[i], values[i]);
    }
  }
}

template <class Element>
void ExpectKeyInItsColumn(const KernelTable& kernels, KvElement element, size_t k_dim) {
  std::vector<float> values(k_dim);
  for (size_t d = 0; d < k_dim; ++d) values[d] = static_cast<float>(d) + 0.25f;
  const GuardedArray<float> key(values);
  for (int slot = 0; slot < kKeyTileTokens; ++slot) {
    const GuardedArray<Element> tile(k_dim * kKeyTileTokens);
    std::fill(tile.begin(), tile.end(), Element{77});
    kernels.store_key(key.data(), static_cast<int64_t>(k_dim), element, slot,
                      reinterpret_cast<std::byte*>(tile.data()));
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
    ExpectKeyInItsColumn<float>(kernels(), KvElement::kF32, k_dim);
    ExpectKeyInItsColumn<uint16_t>(kernels(), KvElement::kF16, k_dim);
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
  std::vector<std::byte> scratch(kernels().attention_scratch_bytes(1, 1, 1, kValues));
  kernels().attention({.queries = &query,
                       .query_row_stride = 1,
                       .out = out.data(),
                       .out_row_stride = kValues,
                       .rows = 1,
                       .positions = &position,
                       .heads_per_kv = 1,
                       .k_dim = 1,
                       .v_dim = kValues,
                       .k_element = KvElement::kF32,
                       .v_element = KvElement::kF16,
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
