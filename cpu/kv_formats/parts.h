// Parts that formats of keys and values are made of: plain rows of numbers that take whole bytes,
// and scales.
#pragma once

#include <cstddef>
#include <cstring>

namespace kvant::cpu {

// A plain row is an array of numbers.
template <class NumberType>
struct KvWholeBytes {
  using Number = NumberType;
  static constexpr int kBits = 8 * sizeof(Number);

  static Number InRow(const std::byte* row, size_t d) { return Load(row + d * sizeof(Number)); }
  static void PutInRow(std::byte* row, size_t d, Number number) {
    Store(row + d * sizeof(Number), number);
  }

 protected:
  static Number Load(const std::byte* from) {
    Number number;
    std::memcpy(&number, from, sizeof number);
    return number;
  }
  static void Store(std::byte* to, Number number) { std::memcpy(to, &number, sizeof number); }
};

struct KvNoScales {
  static constexpr bool kHasScales = false;
  static constexpr int kNumbersPerScale = 0;
  static constexpr size_t kScaleBytes = 0;
};

// kNumbers adjacent numbers of a token share a float.
template <int kNumbers>
struct KvFloatScales {
  static constexpr bool kHasScales = true;
  static constexpr int kNumbersPerScale = kNumbers;
  static constexpr size_t kScaleBytes = sizeof(float);

  static float LoadScale(const std::byte* from) {
    float scale;
    std::memcpy(&scale, from, sizeof scale);
    return scale;
  }
  static void StoreScale(std::byte* to, float scale) { std::memcpy(to, &scale, sizeof scale); }
};

}  // namespace kvant::cpu
