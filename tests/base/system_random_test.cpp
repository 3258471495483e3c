// Seeds from the system.
#include "base/system_random.h"

#include <gtest/gtest.h>

#include <set>

namespace kvant {
namespace {

// Two of 64 draws of 32 bits are equal with a probability of 5e-7; a constant fails at once.
TEST(SystemRandom, DrawsDiffer) {
  std::set<uint32_t> draws;
  for (int i = 0; i < 64; ++i) draws.insert(SystemRandom());
  EXPECT_EQ(draws.size(), 64u);
}

}  // namespace
}  // namespace kvant
