// The two instruction sets for Arm give the same bits: one multiplies dot products, the other pairs
// of rows and tokens, and only exact integers are made in different ways.
#include <gtest/gtest.h>

#include "cpu/dispatch.h"
#include "tests/cpu/isa_test.h"
#include "tests/cpu/matmul_problem.h"

namespace kvant::cpu {
namespace {

TEST(MatMulArm, PairsAndDotProductsHaveTheSameBits) {
  const Result<const KernelTable*> pairs = ChooseKernels("i8mm");
  const Result<const KernelTable*> dots = ChooseKernels("neon");
  if (!pairs.ok() || !dots.ok()) GTEST_SKIP() << "no CPU with i8mm";
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    for (const int64_t cols : {256, 288, 544, 1280}) {
      if (cols % format.block_values != 0) continue;
      for (const int64_t tokens : {1, 2, 3, 5, 8, 9, 23, 65}) {
        const MatMulProblem by_pairs(**pairs, format, 5, cols, tokens);
        const MatMulProblem by_dots(**dots, format, 5, cols, tokens);
        test::ExpectSameBits(by_pairs.Run(), by_dots.Run(), by_pairs.kernel().name);
      }
    }
  }
}

}  // namespace
}  // namespace kvant::cpu
