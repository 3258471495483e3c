// Tables of matrix kernels that are put together from those of two instruction sets.
#include "cpu/matmul_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvant::cpu {
namespace {

MatMulKernel Named(const char* name, bool generic) {
  MatMulKernel kernel{};
  kernel.name = name;
  kernel.generic = generic;
  return kernel;
}

TEST(MatMulTable, TakesFromTheOtherOnlyWhatItLacks) {
  const std::vector<MatMulKernel> mine = {Named("mine 0", false), Named("mine 1", true),
                                          Named("mine 2", false), Named("mine 3", true)};
  const std::vector<MatMulKernel> other = {Named("other 0", false), Named("other 1", false),
                                           Named("other 2", true), Named("other 3", true)};
  std::string names;
  for (const MatMulKernel& kernel : WithKernelsOf(other, mine))
    names += kernel.name + std::string(";");
  EXPECT_EQ(names, "mine 0;other 1;mine 2;mine 3;");
}

}  // namespace
}  // namespace kvant::cpu
