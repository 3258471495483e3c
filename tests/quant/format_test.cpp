// The table of formats against the published sizes and ids, and decoding against blocks that the
// Python package gguf decoded.
#include "quant/format.h"
#include "quant/formats/iq3_kt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "quant/formats/iq_grids.h"
#include "tests/quant/fixtures.h"

namespace kvant::quant {
namespace {

struct Published {
  uint32_t id;
  const char* name;
  double bits;
  int block_values;
  int code_min;
  int code_max;
};

// Ids and sizes from ggml.h, of ik_llama.cpp from 133 on, and the GGUF specification (MXFP4 and
// NVFP4: from the Python package gguf); code ranges from the formats' bits and tables, in units of
// their integer form.
constexpr Published kPublished[] = {
    {0, "F32", 32, 1, 0, 0},
    {1, "F16", 16, 1, 0, 0},
    {2, "Q4_0", 4.5, 32, -8, 7},
    {3, "Q4_1", 5, 32, 0, 15},
    {6, "Q5_0", 5.5, 32, -16, 15},
    {7, "Q5_1", 6, 32, 0, 31},
    {8, "Q8_0", 8.5, 32, -128, 127},
    {10, "Q2_K", 2.625, 256, 0, 3},
    {11, "Q3_K", 3.4375, 256, -4, 3},
    {12, "Q4_K", 4.5, 256, 0, 15},
    {13, "Q5_K", 5.5, 256, 0, 31},
    {14, "Q6_K", 6.5625, 256, -32, 31},
    {30, "BF16", 16, 1, 0, 0},
    {16, "IQ2_XXS", 2.0625, 256, -43, 43},
    {17, "IQ2_XS", 2.3125, 256, -43, 43},
    {18, "IQ3_XXS", 3.0625, 256, -62, 62},
    {19, "IQ1_S", 1.5625, 256, -9, 9},
    {20, "IQ4_NL", 4.5, 32, -127, 113},
    {21, "IQ3_S", 3.4375, 256, -15, 15},
    {22, "IQ2_S", 2.5625, 256, -43, 43},
    {23, "IQ4_XS", 4.25, 256, -127, 113},
    {29, "IQ1_M", 1.75, 256, -9, 9},
    {34, "TQ1_0", 1.6875, 256, -1, 1},
    {35, "TQ2_0", 2.0625, 256, -1, 2},
    {39, "MXFP4", 4.25, 32, -12, 12},
    {40, "NVFP4", 4.5, 64, -12, 12},
    {41, "Q1_0", 1.125, 128, -1, 1},
    {42, "Q2_0", 2.25, 64, -1, 2},
    {133, "Q6_0", 6.5, 32, -32, 31},
    {137, "IQ2_K", 2.375, 256, -31, 22},
    {138, "IQ3_K", 3.4375, 256, -63, 51},
    {139, "IQ4_K", 4.5, 256, -127, 117},
    {140, "IQ5_K", 5.5, 256, -126, 123},
    {141, "IQ6_K", 6.625, 256, -127, 122},
    {144, "IQ4_KS", 4.25, 256, -127, 117},
    {145, "IQ2_KS", 2.1875, 256, -31, 22},
    {146, "IQ4_KSS", 4, 256, -127, 117},
    {152, "IQ5_KS", 5.25, 256, -126, 123},
    {156, "IQ3_KS", 3.1875, 256, -63, 51},
    {134, "IQ1_BN", 1.625, 64, -1, 1},
    {135, "IQ2_BN", 2, 64, -1, 2},
    {151, "Q8_KV", 8, 32, -128, 127},
    {157, "IQ2_KL", 2.6875, 256, -63, 47},
    {153, "IQ2_KT", 2.125, 256, -126, 126},
    {154, "IQ3_KT", 3.125, 256, -126, 126},
    {155, "IQ4_KT", 4, 256, -126, 126},
    {158, "IQ1_KT", 1.75, 256, -126, 126},
};

TEST(FormatTable, HasThePublishedIdsAndSizes) {
  for (const Published& published : kPublished) {
    const FormatTraits* format = FindFormat(TensorType{published.id});
    ASSERT_NE(format, nullptr) << published.name;
    EXPECT_STREQ(format->name, published.name);
    EXPECT_EQ(format->block_values, published.block_values) << published.name;
    EXPECT_EQ(format->bits_per_value(), published.bits) << published.name;
    EXPECT_EQ(format->quantized(), published.code_min != published.code_max) << published.name;
    EXPECT_EQ(FindFormat(published.name), format);
  }
}

TEST(FormatTable, HasUniqueIdsAndNamesAndConsistentIndices) {
  std::set<uint32_t> ids;
  std::set<std::string> names;
  int index = 0;
  for (const FormatTraits& format : AllFormats()) {
    EXPECT_TRUE(ids.insert(static_cast<uint32_t>(format.type)).second) << format.name;
    EXPECT_TRUE(names.insert(format.name).second) << format.name;
    EXPECT_EQ(FormatIndex(format), index++);
    EXPECT_NE(format.encode, nullptr) << format.name;
    EXPECT_EQ(UnsupportedTypeName(static_cast<uint32_t>(format.type)), nullptr) << format.name;
  }
}

// The formats that llama-quantize refuses to write without an importance matrix; IQ1_KT and IQ2_KT
// that of ik_llama.cpp.
TEST(FormatTable, KnowsWhichFormatsNeedImportance) {
  std::set<std::string> names;
  for (const FormatTraits& format : AllFormats()) {
    if (format.needs_importance) names.insert(format.name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"IQ1_KT", "IQ1_M", "IQ1_S", "IQ2_KT", "IQ2_S", "IQ2_XS",
                                          "IQ2_XXS"}));
}

TEST(FormatTable, FindsNamesInAnyCase) {
  EXPECT_EQ(FindFormat("q4_k"), FindFormat(TensorType{12}));
  EXPECT_EQ(FindFormat("bF16"), FindFormat(TensorType{30}));
  EXPECT_EQ(FindFormat("Q4_"), nullptr);
  EXPECT_EQ(FindFormat(""), nullptr);
  EXPECT_EQ(FindFormat(TensorType{4}), nullptr);
}

TEST(FormatTable, NamesTypesItCannotRead) {
  EXPECT_STREQ(UnsupportedTypeName(4), "Q4_2 (removed from GGUF)");
  EXPECT_STREQ(UnsupportedTypeName(28), "F64");
  EXPECT_STREQ(UnsupportedTypeName(229),
               "IQ1_M_R4 (of ik_llama.cpp; no other type has its values)");
  EXPECT_STREQ(UnsupportedTypeName(142),
               "PQ2_0 (of Prism; its codes go with a rotation of activations)");
  EXPECT_EQ(UnsupportedTypeName(43), nullptr);
  EXPECT_EQ(UnsupportedTypeName(0xffffffffu), nullptr);
}

// Every fixture: the name of a format, the bytes of a row and its values.
template <class Check>
void ForEachDecodedRow(const char* file, size_t formats, Check check) {
  const nlohmann::json fixtures = test::ReadQuantFixture(file);
  ASSERT_EQ(fixtures.size(), formats);
  for (const auto& [name, blocks] : fixtures.items()) {
    const FormatTraits* format = FindFormat(name);
    ASSERT_NE(format, nullptr) << name;
    for (const auto& block : blocks) {
      const std::vector<std::byte> bytes = test::ParseBytes(block["bytes"]);
      const std::vector<float> expected = test::ParseFloats(block["values"]);
      ASSERT_EQ(static_cast<int64_t>(bytes.size()), format->row_bytes(std::ssize(expected)))
          << name;
      check(*format, bytes, expected);
    }
  }
}

// Bit for bit, except that any NaN equals any other.
void ExpectEqualBits(const FormatTraits& format, const std::vector<std::byte>& bytes,
                     const std::vector<float>& expected) {
  std::vector<std::byte> odd(bytes.size() + 1);
  std::memcpy(odd.data() + 1, bytes.data(), bytes.size());
  std::vector<float> values(expected.size());
  format.decode(odd.data() + 1, values.data(), std::ssize(values));
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(values[i])) << format.name << " value " << i;
    } else if (format.type == IQ3_KT::kType && expected[i] == 0) {
      EXPECT_EQ(values[i], 0.0f) << "value " << i;  // signs lie apart, and integers have one zero
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected[i]))
          << format.name << " value " << i;
    }
  }
}

TEST(Decode, EqualsGgufBitForBitAtAnyAddress) {
  ForEachDecodedRow("decode_blocks.json", 23, ExpectEqualBits);
}

// The levels of IQ6_K are the nearest integers to the polynomial that ik_llama.cpp's conversion
// computes; its products have the same integers.
TEST(Decode, EqualsIkLlamaBitForBitAtAnyAddress) {
  ForEachDecodedRow("decode_blocks_ik.json", 21,
                    [](const FormatTraits& format, const std::vector<std::byte>& bytes,
                       const std::vector<float>& expected) {
                      if (std::string(format.name) != "IQ6_K") {
                        return ExpectEqualBits(format, bytes, expected);
                      }
                      IntegerBlock integers;
                      format.to_integers(bytes.data(), integers);
                      std::vector<float> values(expected.size());
                      format.decode(bytes.data(), values.data(), std::ssize(values));
                      for (size_t i = 0; i < values.size(); ++i) {
                        const float scale = std::fabs(integers.scales[i / kGroupValues]);
                        if (!std::isfinite(expected[i])) continue;
                        EXPECT_NEAR(values[i], expected[i], 0.51f * scale) << "value " << i;
                      }
                    });
}

TEST(Decode, IntegerFormGivesTheSameValues) {
  const auto check = [](const FormatTraits& format, const std::vector<std::byte>& bytes,
                        const std::vector<float>& expected) {
    IntegerBlock integers;
    format.to_integers(bytes.data(), integers);
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!std::isfinite(expected[i])) continue;
      const double scale = integers.scales[i / kGroupValues];
      const double offset = integers.offsets[i / kGroupValues];
      EXPECT_NEAR(scale * integers.codes[i] - offset, expected[i],
                  1e-6 * (std::fabs(scale) + std::fabs(offset)))
          << format.name << " value " << i;
      EXPECT_TRUE(format.has_offsets || offset == 0) << format.name;
    }
  };
  ForEachDecodedRow("decode_blocks.json", 23, check);
}

template <class Grid>
void ExpectGrid(const nlohmann::json& fixture, const Grid& grid, int unit) {
  const auto values = fixture["values"].get<std::vector<int>>();
  std::istringstream points(fixture["points"].get<std::string>());
  int count = 0;
  for (std::string letters; points >> letters; ++count) {
    ASSERT_LT(count, Grid::kCount);
    ASSERT_EQ(letters.size(), static_cast<size_t>(Grid::kDims));
    for (int j = 0; j < Grid::kDims; ++j) {
      const int value = values[static_cast<size_t>(letters[static_cast<size_t>(j)] - 'a')];
      ASSERT_EQ(grid.points[count][j], unit * value) << "point " << count;
    }
  }
  EXPECT_EQ(count, Grid::kCount);
}

TEST(Decode, GridsEqualGgufs) {
  const nlohmann::json fixtures = test::ReadQuantFixture("grids.json");
  ExpectGrid(fixtures["IQ1_S"], kIq1Grid, 8);
  ExpectGrid(fixtures["IQ2_XXS"], kIq2XxsGrid, 1);
  ExpectGrid(fixtures["IQ2_XS"], kIq2XsGrid, 1);
  ExpectGrid(fixtures["IQ2_S"], kIq2SGrid, 1);
  ExpectGrid(fixtures["IQ3_XXS"], kIq3XxsGrid, 1);
  ExpectGrid(fixtures["IQ3_S"], kIq3SGrid, 1);
}

// Random bytes: every code stays in its range and reaches both ends of it.
TEST(Decode, TakesAnyBytesAndKeepsCodesInRange) {
  std::mt19937 random(7);
  for (const Published& published : kPublished) {
    const FormatTraits& format = *FindFormat(TensorType{published.id});
    constexpr int kBlocks = 200;
    std::vector<std::byte> bytes(
        static_cast<size_t>(format.row_bytes(int64_t{kBlocks} * format.block_values)));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    std::vector<float> values(static_cast<size_t>(kBlocks * format.block_values));
    format.decode(bytes.data(), values.data(), static_cast<int64_t>(values.size()));
    if (!format.quantized()) continue;
    int least = 127;
    int greatest = -128;
    for (int block = 0; block < kBlocks; ++block) {
      IntegerBlock integers;
      format.to_integers(bytes.data() + format.head_bytes + block * format.block_bytes, integers);
      for (int i = 0; i < format.block_values; ++i) {
        least = std::min<int>(least, integers.codes[i]);
        greatest = std::max<int>(greatest, integers.codes[i]);
      }
    }
    // The ends of the range are rare where codes are sums of four numbers.
    const int rare = std::string(format.name).ends_with("_KT") ? 16 : 0;
    EXPECT_GE(least, published.code_min) << format.name;
    EXPECT_LE(greatest, published.code_max) << format.name;
    EXPECT_LE(least, published.code_min + rare) << format.name;
    EXPECT_GE(greatest, published.code_max - rare) << format.name;
  }
}

}  // namespace
}  // namespace kvant::quant
