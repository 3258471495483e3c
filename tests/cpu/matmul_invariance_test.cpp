// The bits of an output do not depend on what is computed beside it: tokens, rows, strides.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/cpu/isa_test.h"
#include "tests/cpu/matmul_problem.h"

namespace kvant::cpu {
namespace {

class MatMulInvarianceTest : public test::IsaTest {
 protected:
  // Several columns per format: whole blocks, a row that ends inside a block of 256.
  static std::vector<int64_t> Columns(const quant::FormatTraits& format) {
    std::vector<int64_t> columns;
    for (const int64_t cols : {172, 288, 1280}) {
      if (cols % format.block_values == 0) columns.push_back(cols);
    }
    return columns;
  }
};

TEST_P(MatMulInvarianceTest, TokensTogetherOrAlone) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t cols : Columns(format)) {
      const MatMulProblem problem(kernels(), format, 19, cols, 64);
      std::vector<float> alone(64 * 19);
      for (int64_t token = 0; token < 64; ++token) {
        MatMulTask task = problem.Task(alone.data() + token * 19);
        task.activations += token * task.activation_stride;
        task.tokens = 1;
        problem.kernel().run(task);
      }
      for (const int64_t tokens : {2, 3, 4, 5, 6, 7, 8, 9, 31, 64}) {
        std::vector<float> together(static_cast<size_t>(tokens * 19));
        MatMulTask task = problem.Task(together.data());
        task.tokens = tokens;
        problem.kernel().run(task);
        test::ExpectSameBits(together, std::span(alone).first(together.size()),
                             problem.kernel().name);
      }
    }
  }
}

TEST_P(MatMulInvarianceTest, RowsSplitAnywhere) {
  constexpr int64_t kRows = 71;
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t cols : Columns(format)) {
      for (const int64_t tokens : {1, 5, 13}) {
        const MatMulProblem problem(kernels(), format, kRows, cols, tokens);
        const std::vector<float> whole = problem.Run();
        std::vector<float> split(whole.size());
        MatMulTask task = problem.Task(split.data());
        for (const int64_t end : {1, 3, 16, 48, 50, 71}) {
          task.row_end = end;
          problem.kernel().run(task);
          task.row_begin = end;
        }
        test::ExpectSameBits(split, whole, problem.kernel().name);
      }
    }
  }
}

TEST_P(MatMulInvarianceTest, AddIsSetThenOneAddition) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t tokens : {1, 4, 11}) {
      const MatMulProblem problem(kernels(), format, 9, 256, tokens);
      std::vector<float> expected = problem.Run();
      std::vector<float> sums(expected.size());
      for (size_t i = 0; i < sums.size(); ++i) {
        sums[i] = static_cast<float>(i) * 0.37f - 3.0f;
        expected[i] = sums[i] + expected[i];
      }
      MatMulTask task = problem.Task(sums.data());
      task.store = Store::kAdd;
      problem.kernel().run(task);
      test::ExpectSameBits(sums, expected, problem.kernel().name);
    }
  }
}

// Only out[token][row_begin..row_end) is written.
TEST_P(MatMulInvarianceTest, OutputsBetweenStridesStay) {
  constexpr int64_t kStride = 24;
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t tokens : {1, 10}) {
      const MatMulProblem problem(kernels(), format, 20, 256, tokens);
      const std::vector<float> whole = problem.Run();
      std::vector<float> out(static_cast<size_t>(tokens * kStride), -5.0f);
      std::vector<float> expected = out;
      for (int64_t token = 0; token < tokens; ++token) {
        std::copy_n(whole.begin() + token * 20 + 3, 14, expected.begin() + token * kStride + 3);
      }
      MatMulTask task = problem.Task(out.data());
      task.out_stride = kStride;
      task.row_begin = 3;
      task.row_end = 17;
      problem.kernel().run(task);
      test::ExpectSameBits(out, expected, problem.kernel().name);
    }
  }
}

KVANT_FOR_EACH_ISA(MatMulInvarianceTest);

}  // namespace
}  // namespace kvant::cpu
