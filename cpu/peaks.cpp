#include "cpu/peaks.h"

#include <bit>

namespace kvant::cpu {

int64_t RunClock(int64_t rounds) {
  // Rotations, because some processors perform additions of constants in no time.
  constexpr int kUnrolled = 64;
  uint64_t word = 1;
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 64
    for (int i = 0; i < kUnrolled; ++i) {
      word = std::rotl(word, 7);
      asm volatile("" : "+r"(word));
    }
  }
  return rounds * kUnrolled;
}

}  // namespace kvant::cpu
