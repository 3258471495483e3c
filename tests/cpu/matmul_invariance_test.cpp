// The bits of an output do not depend on what is computed beside it: tokens, rows, strides.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string_view>
#include <tuple>

#include "base/thread_pool.h"
#include "cpu/dispatch.h"
#include "cpu/float_gemm.h"
#include "tests/cpu/isa_test.h"
#include "tests/cpu/matmul_problem.h"

namespace kvant::cpu {
namespace {

class MatMulInvarianceTest : public test::IsaTest {
 protected:
  // Several columns per format: a row that ends inside a block of 256, which is the first or second
  // of the two that some formats multiply together; an odd number of whole blocks, more than stay
  // in the first-level cache beside eight tokens.
  static std::vector<int64_t> Columns(const quant::FormatTraits& format) {
    std::vector<int64_t> columns;
    for (const int64_t cols : {172, 288, 2304}) {
      if (cols % format.block_values == 0) columns.push_back(cols);
    }
    return columns;
  }
};

TEST_P(MatMulInvarianceTest, TokensTogetherOrAlone) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t cols : Columns(format)) {
      // There may be another arithmetic from kManyTokens on.
      const int64_t most = kManyTokens - 1;
      const MatMulProblem problem(kernels(), format, 19, cols, most);
      std::vector<float> alone(static_cast<size_t>(most * 19));
      for (int64_t token = 0; token < most; ++token) {
        MatMulTask task = problem.Task(alone.data() + token * 19);
        task.activations += token * task.activation_stride;
        task.tokens = 1;
        problem.Multiply(task);
      }
      for (const int64_t tokens : {int64_t{2}, int64_t{3}, int64_t{5}, int64_t{6}, int64_t{7},
                                   int64_t{8}, int64_t{9}, int64_t{13}, int64_t{16}, int64_t{17},
                                   int64_t{19}, int64_t{26}, int64_t{31}, int64_t{32}, most}) {
        std::vector<float> together(static_cast<size_t>(tokens * 19));
        MatMulTask task = problem.Task(together.data());
        task.tokens = tokens;
        problem.Multiply(task);
        test::ExpectSameBits(together, std::span(alone).first(together.size()),
                             problem.kernel().name);
      }
    }
  }
}

// Rows that are unpacked in several parts (strips, with AVX-512), by formats with one and two
// scales in 32 columns, with offsets and without; the last part is short and ends inside a block.
TEST_P(MatMulInvarianceTest, LongRowsOfTokensTogetherOrAlone) {
  constexpr int64_t kRows = 50;
  for (const auto& [name, cols] : {std::pair<const char*, int64_t>{"Q4_0", 8480},
                                   {"Q8_0", 4128},
                                   {"Q4_1", 8480},
                                   {"Q6_K", 8448},
                                   {"Q2_K", 4352},
                                   {"IQ4_K", 4352},
                                   {"MXFP4", 4512}}) {
    const MatMulProblem problem(kernels(), *quant::FindFormat(name), kRows, cols, 33);
    for (const int64_t tokens : {9, 33}) {
      std::vector<float> together(static_cast<size_t>(tokens * kRows));
      MatMulTask task = problem.Task(together.data());
      task.tokens = tokens;
      problem.Multiply(task);
      for (int64_t token = 0; token < tokens; ++token) {
        std::vector<float> alone(kRows);
        MatMulTask one = problem.Task(alone.data());
        one.activations += token * one.activation_stride;
        one.tokens = 1;
        problem.Multiply(one);
        test::ExpectSameBits(
            std::span(together).subspan(static_cast<size_t>(token * kRows), alone.size()), alone,
            problem.kernel().name);
      }
    }
  }
}

TEST_P(MatMulInvarianceTest, RowsSplitAnywhere) {
  constexpr int64_t kRows = 71;
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t cols : Columns(format)) {
      for (const int64_t tokens : {1, 13, 67}) {
        const MatMulProblem problem(kernels(), format, kRows, cols, tokens);
        const std::vector<float> whole = problem.Run();
        std::vector<float> split(whole.size());
        MatMulTask task = problem.Task(split.data());
        for (const int64_t end : {1, 3, 16, 48, 50, 71}) {
          task.row_end = end;
          problem.Multiply(task);
          task.row_begin = end;
        }
        test::ExpectSameBits(split, whole, problem.kernel().name);
      }
    }
  }
}

// From kManyTokens on the bits of a token do not depend on how many others there are, nor on its
// place among them.
TEST_P(MatMulInvarianceTest, ManyTokensTogetherOrFewer) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    const MatMulProblem problem(kernels(), format, 17, 256, 300);
    const std::vector<float> whole = problem.Run();
    for (const auto& [first, count] :
         {std::pair<int64_t, int64_t>{0, 64}, {5, 71}, {40, 260}, {236, 64}}) {
      std::vector<float> part(static_cast<size_t>(count * 17));
      MatMulTask task = problem.Task(part.data());
      task.activations += first * task.activation_stride;
      task.tokens = count;
      problem.Multiply(task);
      test::ExpectSameBits(part,
                           std::span(whole).subspan(static_cast<size_t>(first * 17), part.size()),
                           problem.kernel().name);
    }
  }
}

// The backend `own` of cpu/float_gemm.h promises one arithmetic for any number of tokens.
TEST_P(MatMulInvarianceTest, FloatsHaveOneArithmeticForAnyNumberOfTokens) {
  for (const char* name : {"F32", "F16", "BF16"}) {
    const MatMulProblem problem(kernels(), *quant::FindFormat(name), 71, 300, 150);
    std::vector<float> together(150 * 71);
    problem.kernel().run(problem.Task(together.data()));
    for (const int64_t token : {0, 1, 63, 64, 149}) {
      std::vector<float> alone(71);
      MatMulTask task = problem.Task(alone.data());
      task.activations += token * task.activation_stride;
      task.tokens = 1;
      problem.kernel().run(task);
      test::ExpectSameBits(alone, std::span(together).subspan(static_cast<size_t>(token * 71), 71),
                           name);
    }
  }
}

// Few tokens that count as many, as rows of short texts do, have the bits of many: as many as are
// multiplied in a way of their own, and more; with sums that begin at something.
TEST_P(MatMulInvarianceTest, FewTokensThatCountAsMany) {
  constexpr int64_t kRows = 71;
  constexpr int64_t kTokens = 200;
  for (const char* name : {"F32", "F16", "BF16", "Q8_0", "Q4_K"}) {
    for (const int64_t cols : {256, 768, 1280}) {
      const MatMulProblem problem(kernels(), *quant::FindFormat(name), kRows, cols, kTokens);
      for (const Store store : {Store::kSet, Store::kAdd}) {
        const auto run = [&](int64_t first, int64_t count) {
          std::vector<float> out(static_cast<size_t>(count * kRows));
          for (size_t i = 0; i < out.size(); ++i) out[i] = 0.37f * static_cast<float>(i % kRows);
          MatMulTask task = problem.Task(out.data());
          task.activations += first * task.activation_stride;
          task.tokens = count;
          task.count = TokenCount::kMany;
          task.store = store;
          const MatMulKernel& kernel = problem.kernel();
          kernel.run_many != nullptr ? kernel.run_many(task) : kernel.run(task);
          return out;
        };
        const std::vector<float> all = run(0, kTokens);
        for (const int64_t count : {1, 2, 8, 9, 15, 16, 17, 31, 33, 48, 49, 80, 96, 97, 140, 192}) {
          const int64_t first = 3;
          const std::vector<float> few = run(first, count);
          test::ExpectSameBits(few, std::span(all).subspan(first * kRows, few.size()),
                               fmt::format("{}, {} tokens", problem.kernel().name, count));
        }
      }
    }
  }
}

// Panels of any width share one arithmetic, for formats that all unpack with the scales they have.
TEST_P(MatMulInvarianceTest, ManyTokensHaveTheSameBitsInAllPanels) {
  if (GetParam() == "scalar") GTEST_SKIP() << "has no panels";
  const Result<const KernelTable*> other = ChooseKernels("avx512vnni");
  if (!other.ok()) GTEST_SKIP() << other.error().message;
  if (kernels().many_form != (*other)->many_form) GTEST_SKIP() << "has an arithmetic of its own";
  for (const char* name : {"Q4_0", "Q4_1", "Q8_0", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M",
                           "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "TQ1_0"}) {
    const quant::FormatTraits& format = *quant::FindFormat(name);
    const MatMulProblem problem(kernels(), format, 50, 768, 70);
    const MatMulProblem expected(**other, format, 50, 768, 70);
    test::ExpectSameBits(problem.Run(), expected.Run(), problem.kernel().name);
  }
}

// With VBMI weights are unpacked in another way to the same blocks: also odd numbers of blocks and
// rows, whole ones and the ends of rows.
TEST(MatMulVbmi, HasTheBitsOfAvx512Vnni) {
  const Result<const KernelTable*> ours = ChooseKernels("avx512vbmi");
  if (!ours.ok()) GTEST_SKIP() << ours.error().message;
  const Result<const KernelTable*> other = ChooseKernels("avx512vnni");
  ASSERT_TRUE(other.ok());
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t tokens : {1, 2, 5, 8, 13, 32, 64}) {
      const MatMulProblem problem(**ours, format, 37, 1280, tokens);
      const MatMulProblem expected(**other, format, 37, 1280, tokens);
      test::ExpectSameBits(problem.Run(), expected.Run(), problem.kernel().name);
    }
  }
}

// The rows that each thread of a team would have.
TEST_P(MatMulInvarianceTest, TeamsOfAnySize) {
  constexpr int64_t kRows = 112;
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    const MatMulProblem problem(kernels(), format, kRows, 256, 64);
    const std::vector<float> whole = problem.Run();
    for (const int members : {2, 3, 7}) {
      std::vector<float> shared(whole.size());
      MatMulTask task = problem.Task(shared.data());
      for (int member = 0; member < members; ++member) {
        const Range range = OwnedRange(kRows, problem.kernel().row_tile, member, members);
        task.row_begin = range.begin;
        task.row_end = range.end;
        problem.Multiply(task);
      }
      test::ExpectSameBits(shared, whole, problem.kernel().name);
    }
  }
}

// Panels of floats add 256 columns after the other to what is there. So with more columns each of
// these additions rounds the former value too, and both results have the error of a product.
void ExpectNearSum(const MatMulProblem& problem, std::span<const float> sums,
                   std::span<const float> expected, std::span<const float> former) {
  const double additions = static_cast<double>(problem.cols() / 256 + 1);
  for (int64_t i = 0; i < std::ssize(sums); ++i) {
    const size_t at = static_cast<size_t>(i);
    const double product = problem.ErrorBound(i / problem.rows(), i % problem.rows());
    const double tolerance = 2 * product + additions * test::kRounding * std::abs(former[at]);
    ASSERT_NEAR(sums[at], expected[at], tolerance) << problem.kernel().name << ", output " << i;
  }
}

TEST_P(MatMulInvarianceTest, AddIsSetThenOneAddition) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t cols : {256, 768, 1280}) {
      for (const int64_t tokens : {1, 4, 11, 64}) {
        const MatMulProblem problem(kernels(), format, 9, cols, tokens);
        std::vector<float> expected = problem.Run();
        std::vector<float> former(expected.size());
        for (size_t i = 0; i < former.size(); ++i) {
          former[i] = static_cast<float>(i) * 0.37f - 3.0f;
          expected[i] = former[i] + expected[i];
        }
        std::vector<float> sums = former;
        MatMulTask task = problem.Task(sums.data());
        task.store = Store::kAdd;
        problem.Multiply(task);
        if (cols > 256 && tokens >= kManyTokens && problem.kernel().run_many != nullptr) {
          ExpectNearSum(problem, sums, expected, former);
        } else {
          test::ExpectSameBits(sums, expected, problem.kernel().name);
        }
      }
    }
  }
}

// Activations that an earlier call left in the scratch serve only calls with equal activations.
// Each loop ends where it began, so that a call differs from the one before in one thing alone.
TEST_P(MatMulInvarianceTest, ArrangedActivationsGiveTheSameBits) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kCols = 512;
  constexpr const char* kFormats[] = {"Q8_0", "IQ4_KS", "Q4_0",  "Q4_K",
                                      "Q6_K", "Q2_K",   "MXFP4", "Q8_0"};
  const quant::FormatTraits& q8_0 = *quant::FindFormat("Q8_0");
  size_t scratch_bytes = 0;  // kernels may come from several instruction sets
  for (const char* name : kFormats) {
    const MatMulProblem problem(kernels(), *quant::FindFormat(name), kRows, kCols, 1);
    scratch_bytes = std::max(scratch_bytes, problem.Task(nullptr).scratch.size());
  }
  const test::GuardedArray<std::byte> scratch(RoundUp(scratch_bytes, 64));
  std::fill(scratch.begin(), scratch.end(), std::byte{0xff});
  for (const uint32_t seed : {1, 2}) {
    const MatMulProblem tokens_of(kernels(), q8_0, kRows, kCols, 150, seed);
    ArrangedActivations arranged;
    for (const int64_t tokens : {9, 5, 5, 1, 63, 64, 63, 150, 9}) {
      for (const char* name : kFormats) {
        const MatMulProblem weights(kernels(), *quant::FindFormat(name), kRows, kCols, 1);
        std::vector<float> expected(static_cast<size_t>(tokens * kRows));
        std::vector<float> out(expected.size());
        MatMulTask task = weights.Task(expected.data());
        task.activations = tokens_of.Task(nullptr).activations;
        task.tokens = tokens;
        weights.Multiply(task);
        task.out = out.data();
        task.scratch = {scratch.data(), scratch_bytes};
        task.arranged = &arranged;
        weights.Multiply(task);
        test::ExpectSameBits(out, expected,
                             fmt::format("{}, {} tokens", weights.kernel().name, tokens));
      }
    }
  }
}

// Only out[token][row_begin..row_end) is written.
TEST_P(MatMulInvarianceTest, OutputsBetweenStridesStay) {
  constexpr int64_t kStride = 24;
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t tokens : {1, 10, 65}) {
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
      problem.Multiply(task);
      test::ExpectSameBits(out, expected, problem.kernel().name);
    }
  }
}

// Multiplies rows [6, row_end) of one matrix and the rows of another that lie `shift` rows further,
// as a pair: each token's products come once, in stretches that begin where they may.
TEST_P(MatMulInvarianceTest, PairsHaveTheBitsOfEachMatrixAlone) {
  constexpr int64_t kFirst = 6;
  constexpr int64_t kShift = 3;
  constexpr int64_t kRows = 400;
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    if (!kernels().matmul[static_cast<size_t>(quant::FormatIndex(format))].takes_pairs) continue;
    for (const auto& [cols, tokens, row_end] :
         {std::tuple<int64_t, int64_t, int64_t>{256, 64, 70}, {768, 67, 134}, {256, 515, 397}}) {
      // Several passes have nothing to do with the format.
      if (tokens > 100 && std::string_view(format.name) != "Q8_0") continue;
      const MatMulProblem problem(kernels(), format, kRows, cols, tokens);
      const MatMulProblem second(kernels(), format, kRows, cols, 1, 2);
      const std::vector<float> expected = problem.Run();
      std::vector<float> of_second(expected.size());
      MatMulTask task = problem.Task(of_second.data());
      task.weights = second.weights();
      problem.Multiply(task);

      std::vector<std::vector<int>> taken(static_cast<size_t>(tokens),
                                          std::vector<int>(static_cast<size_t>(kRows)));
      const auto take = [&](int64_t token, int64_t row, int64_t count, float* a, float* b) {
        ASSERT_EQ((row - kFirst) % kMatMulPairRows, 0);
        const float* first = expected.data() + token * kRows + row;
        const float* shifted = of_second.data() + token * kRows + row + kShift;
        ASSERT_EQ(std::memcmp(a, first, static_cast<size_t>(count) * sizeof(float)), 0);
        ASSERT_EQ(std::memcmp(b, shifted, static_cast<size_t>(count) * sizeof(float)), 0);
        for (int64_t r = row; r < row + count; ++r) {
          ++taken[static_cast<size_t>(token)][static_cast<size_t>(r)];
        }
        std::fill_n(a, count, NAN);
        std::fill_n(b, count, NAN);
      };
      using Take = decltype(take);
      const MatMulPair pair = {
          second.weights() + kShift * format.row_bytes(cols),
          [](const void* context, int64_t token, int64_t row, int64_t count, float* a, float* b) {
            (*static_cast<const Take*>(context))(token, row, count, a, b);
          },
          &take};
      task = problem.Task(nullptr);
      task.row_begin = kFirst;
      task.row_end = row_end;
      task.pair = &pair;
      problem.Multiply(task);
      for (const std::vector<int>& rows : taken) {
        for (int64_t r = 0; r < kRows; ++r) {
          ASSERT_EQ(rows[static_cast<size_t>(r)], r >= kFirst && r < row_end ? 1 : 0)
              << problem.kernel().name << ", row " << r;
        }
      }
    }
  }
}

KVANT_FOR_EACH_ISA(MatMulInvarianceTest);

}  // namespace
}  // namespace kvant::cpu
