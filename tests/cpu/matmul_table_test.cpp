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

TEST(MatMulTable, SpecialKernelsReplaceThoseOfTheirFormats) {
  const auto run = [](const MatMulTask&) {};
  const auto bytes = [](int64_t) -> size_t { return 7; };
  const std::vector<quant::FormatTraits> formats(quant::AllFormats().begin(),
                                                 quant::AllFormats().end());
  const MatMulEntry special[] = {{formats[3].type, run, run}};
  const std::vector<MatMulKernel> before(formats.size(), Named("old", true));
  const std::vector<MatMulKernel> after =
      WithSpecialKernels(before, {"new", special, nullptr, nullptr, bytes, bytes});
  ASSERT_EQ(after.size(), formats.size());
  for (size_t i = 0; i < after.size(); ++i) {
    if (i == 3) continue;
    EXPECT_STREQ(after[i].name, "old");
    EXPECT_TRUE(after[i].generic);
  }
  EXPECT_NE(std::string(after[3].name).find("new"), std::string::npos);
  EXPECT_FALSE(after[3].generic);
  EXPECT_EQ(after[3].run, static_cast<MatMulFunction>(run));
  EXPECT_EQ(after[3].scratch_bytes(1), 7u);
}

}  // namespace
}  // namespace kvant::cpu
