// The random numbers of sampling: xoshiro256** 1.0, seeded through splitmix64.
//
// Own code instead of <random>, because a seed must give the same tokens with every standard
// library: only 64-bit integer arithmetic is used. Source of both algorithms: D. Blackman and
// S. Vigna, "Scrambled linear pseudorandom number generators", ACM TOMS 47 (2021), and
// prng.di.unimi.it. Not for cryptography. Thread-safety: one thread at a time per object.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace kvant {

// Spreads one number over many: the recommended way to fill a larger state.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

class Xoshiro256 {
 public:
  using State = std::array<uint64_t, 4>;  // not all zero

  explicit Xoshiro256(const State& state) : s_(state) {}
  explicit Xoshiro256(uint64_t seed) {
    SplitMix64 source(seed);
    for (uint64_t& word : s_) word = source.Next();
  }

  uint64_t Next() {
    const uint64_t result = std::rotl(s_[1] * 5, 7) * 9;
    const uint64_t shifted = s_[1] << 17;
    s_[2] ^= s_[0];
    s_[3] ^= s_[1];
    s_[1] ^= s_[2];
    s_[0] ^= s_[3];
    s_[2] ^= shifted;
    s_[3] = std::rotl(s_[3], 45);
    return result;
  }

  // Uniform in [0, bound), bound > 0, without bias: the upper bits of a draw, and another draw
  // where they lie beyond the bound.
  uint64_t Below(uint64_t bound) {
    const int bits = std::bit_width(bound - 1);
    if (bits == 0) return 0;
    uint64_t value = 0;
    do {
      value = Next() >> (64 - bits);
    } while (value >= bound);
    return value;
  }

 private:
  State s_{};
};

}  // namespace kvant
