// Matrix kernels of every instruction set and format against double-precision sums of the decoded
// weights, within the rounding of the kernels' own float sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "quant/format_list.h"
#include "tests/cpu/isa_test.h"
#include "tests/cpu/matmul_problem.h"

namespace kvant::cpu {
namespace {

// Where there are many tokens, compares every eleventh and the last: steps of 11 meet every place
// in tiles of 6 and of 8.
void ExpectMatchesReference(const MatMulProblem& problem, const std::vector<float>& out) {
  const int64_t step = problem.tokens() < 32 ? 1 : 11;
  const int64_t last = problem.tokens() - 1;
  for (int64_t next = 0; next < last + step; next += step) {
    const int64_t token = std::min(next, last);
    for (int64_t row = 0; row < problem.rows(); ++row) {
      ASSERT_NEAR(out[static_cast<size_t>(token * problem.rows() + row)],
                  problem.Reference(token, row), problem.ErrorBound(token, row))
          << problem.kernel().name << ", row " << row << " of " << problem.rows() << ", "
          << problem.cols() << " columns, token " << token << " of " << problem.tokens();
    }
  }
}

class MatMulValuesTest : public test::IsaTest {
 protected:
  void Check(const quant::FormatTraits& format, int64_t rows, int64_t cols, int64_t tokens) {
    if (cols % format.block_values != 0) return;
    const uint32_t seed = static_cast<uint32_t>(rows + 100 * cols + tokens);
    const MatMulProblem problem(kernels(), format, rows, cols, tokens, seed);
    ExpectMatchesReference(problem, problem.Run());
  }
};

TEST_P(MatMulValuesTest, AnyNumberOfColumns) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t cols : {1, 7, 32, 48, 64, 96, 172, 256, 288, 344, 512, 1120, 2048}) {
      Check(format, 5, cols, 1);
      Check(format, 3, cols, 10);
    }
  }
}

TEST_P(MatMulValuesTest, AnyNumberOfTokens) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 64}) Check(format, 3, 512, tokens);
  }
}

TEST_P(MatMulValuesTest, ManyTokens) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t tokens : {63, 64, 65, 66, 70, 133}) Check(format, 17, 256, tokens);
    for (const int64_t cols : {32, 64, 96, 172, 256, 288, 544, 768, 1120}) {
      Check(format, 3, cols, 65);
    }
    for (const int64_t rows : {1, 16, 33}) Check(format, rows, 256, 64);
  }
  // Every kind of panel (one or two scales in 32 columns, with offsets or without, floats), with
  // several panels of rows and of columns, and more of both and of tokens than pass by at a time.
  for (const char* name : {"Q4_0", "Q4_K", "Q6_K", "Q2_K", "F32", "F16", "BF16"}) {
    Check(*quant::FindFormat(name), 291, 768, 65);
    Check(*quant::FindFormat(name), 3, 1280, 530);
  }
}

TEST_P(MatMulValuesTest, AnyNumberOfRows) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t rows : {1, 2, 4, 15, 33, 67}) {
      Check(format, rows, 256, 1);
      Check(format, rows, 256, 9);
    }
  }
}

// Rows that end inside a block of 256 columns are read with the bytes that follow.
TEST_P(MatMulValuesTest, NextRowDoesNotMatterWhereRowsEndInsideABlock) {
  constexpr int64_t kRows = 77;
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t cols : {544, 672, 768, 1120}) {
      if (!format.quantized() || cols % format.block_values != 0) continue;
      for (const int64_t tokens : {1, 2, 3, 8, 16, 20, 64}) {
        MatMulProblem problem(kernels(), format, kRows, cols, tokens);
        const std::vector<float> before = problem.Run();
        // Scales that are NaN, where all bits of a number are that.
        const auto changed = [](int64_t row) { return row % 5 == 2 || row == kRows - 1; };
        for (int64_t row = 0; row < kRows; ++row) {
          const auto bytes = static_cast<size_t>(format.head_bytes + format.block_bytes);
          if (!changed(row)) continue;
          std::memset(problem.weights() + row * format.row_bytes(cols), 0xff, bytes);
        }
        const std::vector<float> after = problem.Run();
        for (int64_t i = 0; i < kRows * tokens; ++i) {
          if (changed(i % kRows)) continue;
          ASSERT_EQ(after[static_cast<size_t>(i)], before[static_cast<size_t>(i)])
              << problem.kernel().name << ", row " << i % kRows << ", " << cols << " columns, "
              << tokens << " tokens";
        }
      }
    }
  }
}

// Gives every code field of a block one byte value, leaving its scales alone.
template <class Block>
void SetCodes(Block& block, int value) {
  if constexpr (requires { block.codes; }) std::memset(block.codes, value, sizeof(block.codes));
  if constexpr (requires { block.low; }) std::memset(block.low, value, sizeof(block.low));
  if constexpr (requires { block.high; }) std::memset(block.high, value, sizeof(block.high));
}

template <class Format>
void SetCodesIf(const quant::FormatTraits& format, std::byte* bytes, int value) {
  if constexpr (Format::kBlockValues > 1) {
    if (format.type != Format::kType) return;
    typename Format::Block block;
    std::memcpy(&block, bytes, sizeof(block));
    SetCodes(block, value);
    std::memcpy(bytes, &block, sizeof(block));
  }
}

template <class... Formats>
void SetCodes(quant::TypeList<Formats...>, const quant::FormatTraits& format, std::byte* bytes,
              int value) {
  (SetCodesIf<Formats>(format, bytes, value), ...);
}

// Sixteen-bit partial sums would saturate here: every product has the largest magnitude, and all
// have the same sign.
TEST_P(MatMulValuesTest, ExtremeCodesDoNotSaturate) {
  constexpr int64_t kRows = 4;
  constexpr int64_t kCols = 512;
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    if (!format.quantized()) continue;
    for (const int64_t tokens : {1, 9, 66}) {
      MatMulProblem problem(kernels(), format, kRows, kCols, tokens);
      const int fills[kRows] = {0x00, 0xff, 0x80, 0x7f};
      for (int64_t row = 0; row < kRows; ++row) {
        std::byte* bytes = problem.weights() + row * format.row_bytes(kCols);
        for (int64_t i = 0; i < kCols / format.block_values; ++i) {
          SetCodes(quant::FormatList{}, format, bytes + format.head_bytes + i * format.block_bytes,
                   fills[row]);
        }
      }
      for (const int sign : {1, -1}) {
        for (int64_t token = 0; token < tokens; ++token) {
          const int code = token % 2 == 0 ? 127 : -127;
          problem.SetActivations(token, static_cast<int8_t>(sign * code));
        }
        ExpectMatchesReference(problem, problem.Run());
      }
    }
  }
}

// Every weight is -128 and every activation 127 or -127, the largest products. Their sums are
// integers that a float holds exactly, so the order of addition may not matter.
TEST_P(MatMulValuesTest, LargestProductsAreExact) {
  constexpr int64_t kCols = 288;
  const quant::FormatTraits& q8_0 = *quant::FindFormat("q8_0");
  for (const int64_t tokens : {1, 9, 64}) {
    MatMulProblem problem(kernels(), q8_0, 3, kCols, tokens);
    for (int64_t row = 0; row < problem.rows(); ++row) {
      for (int64_t i = 0; i < kCols / 32; ++i) {
        quant::Q8_0::Block block{quant::PackedHalf::Nearest(1.0f), {}};
        std::fill_n(block.codes, 32, static_cast<int8_t>(-128));
        std::memcpy(problem.weights() + row * q8_0.row_bytes(kCols) + i * q8_0.block_bytes, &block,
                    sizeof(block));
      }
    }
    for (int64_t token = 0; token < tokens; ++token) {
      problem.SetActivations(token, token % 2 == 0 ? 127 : -127);
    }
    const std::vector<float> out = problem.Run();
    for (int64_t token = 0; token < tokens; ++token) {
      const float expected = static_cast<float>(kCols * -128 * (token % 2 == 0 ? 127 : -127));
      for (int64_t row = 0; row < problem.rows(); ++row) {
        EXPECT_EQ(out[static_cast<size_t>(token * problem.rows() + row)], expected);
      }
    }
  }
}

// Beside ordinary blocks, blocks of zeros whose scales are up to 2^127, which only MXFP4 has.
TEST_P(MatMulValuesTest, ZerosWithALargeScaleAddNothing) {
  constexpr uint8_t kExponents[] = {232, 233, 240, 255};
  constexpr int64_t kRows = std::size(kExponents);
  constexpr int64_t kCols = 288;
  const quant::FormatTraits& mxfp4 = *quant::FindFormat("MXFP4");
  for (const int64_t tokens : {1, 9, 64}) {
    const MatMulProblem problem(kernels(), mxfp4, kRows, kCols, tokens);
    for (int64_t row = 0; row < kRows; ++row) {
      const quant::MXFP4::Block zeros{kExponents[row], {}};
      std::memcpy(problem.weights() + row * mxfp4.row_bytes(kCols) + row * mxfp4.block_bytes,
                  &zeros, sizeof(zeros));
    }
    ExpectMatchesReference(problem, problem.Run());
  }
}

// Sums of floats are exact in every place of a matrix with many tiles, panels and parts of panels.
TEST_P(MatMulValuesTest, IntegersAsFloatsHaveExactSums) {
  for (const char* name : {"F32", "F16", "BF16"}) {
    const quant::FormatTraits& format = *quant::FindFormat(name);
    for (const auto& [rows, cols, tokens] : {std::tuple<int64_t, int64_t, int64_t>{37, 172, 1},
                                             {5, 513, 5},
                                             {37, 300, 13},
                                             {100, 70, 63},
                                             {291, 530, 77}}) {
      MatMulProblem problem(kernels(), format, rows, cols, tokens);
      const auto weight = [](int64_t row, int64_t col) { return (row * 7 + col * 5) % 31 - 15; };
      const auto activation = [](int64_t token, int64_t col) {
        return (token * 11 + col * 3) % 29 - 14;
      };
      std::vector<float> values(static_cast<size_t>(cols));
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < cols; ++col) {
          values[static_cast<size_t>(col)] = static_cast<float>(weight(row, col));
        }
        format.encode(values.data(), nullptr, problem.weights() + row * format.row_bytes(cols),
                      cols);
      }
      for (int64_t token = 0; token < tokens; ++token) {
        for (int64_t col = 0; col < cols; ++col) {
          problem.FloatRow(token)[col] = static_cast<float>(activation(token, col));
        }
      }
      const std::vector<float> out = problem.Run();
      for (int64_t token = 0; token < tokens; ++token) {
        for (int64_t row = 0; row < rows; ++row) {
          int64_t expected = 0;
          for (int64_t col = 0; col < cols; ++col) {
            expected += weight(row, col) * activation(token, col);
          }
          ASSERT_EQ(out[static_cast<size_t>(token * rows + row)], static_cast<float>(expected))
              << problem.kernel().name << ", row " << row << " of " << rows << ", " << cols
              << " columns, token " << token << " of " << tokens;
        }
      }
    }
  }
}

// A NaN activation must reach every output of its token and no other token.
TEST_P(MatMulValuesTest, NanReachesTheOutput) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t tokens : {2, 9, 64}) {
      MatMulProblem problem(kernels(), format, 5, 256, tokens);
      problem.FloatRow(1)[200] = std::numeric_limits<float>::quiet_NaN();
      problem.Quantize(kernels(), 1);
      const std::vector<float> out = problem.Run();
      for (int64_t i = 0; i < tokens * 5; ++i) {
        EXPECT_EQ(std::isnan(out[static_cast<size_t>(i)]), i / 5 == 1) << problem.kernel().name;
      }
    }
  }
}

TEST_P(MatMulValuesTest, ReadsNoByteBeyondTheLastRow) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t cols : {32, 172, 256, 288}) {
      if (cols % format.block_values != 0) continue;
      for (const int64_t tokens : {1, 3, 9, 65}) {
        const MatMulProblem problem(kernels(), format, 5, cols, tokens);
        const size_t bytes = static_cast<size_t>(5 * format.row_bytes(cols));
        const test::GuardedArray<std::byte> weights(
            std::vector<std::byte>(problem.weights(), problem.weights() + bytes));
        test::GuardedArray<float> out(static_cast<size_t>(5 * tokens));
        MatMulTask task = problem.Task(out.data());
        task.weights = weights.data();
        problem.Multiply(task);
        EXPECT_EQ(out.ToVector(), problem.Run());
      }
    }
  }
}

// A kernel is of its own instruction set, or of one that lends it what it lacks.
TEST_P(MatMulValuesTest, EveryFormatHasAKernel) {
  const bool wide = GetParam().starts_with("avx512") || GetParam().starts_with("amx");
  const std::string lender = wide ? "avx" : GetParam();
  ASSERT_EQ(kernels().matmul.size(), quant::AllFormats().size());
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    const MatMulKernel& kernel = kernels().matmul[static_cast<size_t>(quant::FormatIndex(format))];
    EXPECT_THAT(kernel.name,
                testing::AnyOf(testing::HasSubstr(GetParam()), testing::HasSubstr(lender)));
    EXPECT_EQ(kernel.activation == ActivationKind::kInt8, format.quantized());
    EXPECT_GT(kernel.row_tile, 0);
  }
}

KVANT_FOR_EACH_ISA(MatMulValuesTest);

}  // namespace
}  // namespace kvant::cpu
