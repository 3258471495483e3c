// Weights that are not finite: planted ones are found at their place, in float and block formats.
#include "formats/check_tensors.h"
#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace kvant::formats {
namespace {

// A matrix of `columns` in this format, all bytes zero, over `bytes`.
GgufTensor Matrix(const char* format, int64_t columns, int64_t rows,
                  std::vector<std::byte>& bytes) {
  GgufTensor tensor;
  tensor.name = "blk.0.attn_q.weight";
  tensor.format = quant::FindFormat(format);
  tensor.n_dims = 2;
  tensor.dims[0] = columns;
  tensor.dims[1] = rows;
  bytes.assign(static_cast<size_t>(tensor.row_bytes() * rows), std::byte{0});
  tensor.data = bytes.data();
  tensor.size_bytes = bytes.size();
  return tensor;
}

TEST(CheckTensors, PlantedValuesAreFoundWhateverTheTeam) {
  std::vector<std::byte> bytes;
  const GgufTensor tensor = Matrix("F32", 1000, 64, bytes);
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    EXPECT_EQ(FindNonFinite(tensor, pool).count, 0);
    std::memcpy(bytes.data() + 4 * 63'999, &nan, 4);
    EXPECT_EQ(FindNonFinite(tensor, pool).first, 63'999);
    std::memcpy(bytes.data() + 4 * 17'003, &infinity, 4);
    const NonFinite found = FindNonFinite(tensor, pool);
    EXPECT_EQ(found.count, 2);
    EXPECT_EQ(found.first, 17'003);
    EXPECT_EQ(found.value, infinity);
    EXPECT_EQ(DescribeNonFinite(tensor, found),
              "tensor \"blk.0.attn_q.weight\": 2 of 64000 values are not finite, the first is "
              "infinity at row 17, column 3");
  }
}

TEST(CheckTensors, TheLargestFloatsAreFinite) {
  std::vector<std::byte> bytes;
  const GgufTensor tensor = Matrix("F32", 64, 2, bytes);
  const float large = std::numeric_limits<float>::max();
  for (size_t i = 0; i < 128; ++i) std::memcpy(bytes.data() + 4 * i, &large, 4);
  ThreadPool pool(2);
  EXPECT_EQ(FindNonFinite(tensor, pool).count, 0);
}

// A scale of all ones bits is a NaN in every format with 16-bit scales.
TEST(CheckTensors, ABlockWithABadScale) {
  ThreadPool pool(3);
  for (const char* name : {"F16", "BF16", "Q4_0", "Q8_0", "Q4_K", "Q6_K", "Q2_K"}) {
    std::vector<std::byte> bytes;
    const GgufTensor tensor = Matrix(name, 512, 40, bytes);
    EXPECT_EQ(FindNonFinite(tensor, pool).count, 0) << name;
    const int64_t block = tensor.n_values() / tensor.format->block_values - 2;
    const size_t size = static_cast<size_t>(tensor.format->block_bytes);
    std::memset(bytes.data() + static_cast<size_t>(block) * size, 0xff, size);
    const NonFinite found = FindNonFinite(tensor, pool);
    EXPECT_EQ(found.count, tensor.format->block_values) << name;
    EXPECT_EQ(found.first, block * tensor.format->block_values) << name;
    EXPECT_TRUE(std::isnan(found.value)) << name;
  }
}

}  // namespace
}  // namespace kvant::formats
