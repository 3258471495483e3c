// A set of byte values.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace kvant::grammar {

class ByteSet {
 public:
  constexpr ByteSet() = default;

  // From `first` to `last`, both included.
  static constexpr ByteSet Range(uint8_t first, uint8_t last) {
    ByteSet set;
    for (int byte = first; byte <= last; ++byte) set.Add(static_cast<uint8_t>(byte));
    return set;
  }

  constexpr void Add(uint8_t byte) { words_[byte / 64] |= uint64_t{1} << (byte % 64); }
  constexpr bool Has(uint8_t byte) const { return (words_[byte / 64] >> (byte % 64) & 1) != 0; }
  constexpr bool empty() const { return (words_[0] | words_[1] | words_[2] | words_[3]) == 0; }
  constexpr bool Meets(const ByteSet& other) const {
    uint64_t common = 0;
    for (size_t i = 0; i < words_.size(); ++i) common |= words_[i] & other.words_[i];
    return common != 0;
  }
  constexpr int count() const {
    int sum = 0;
    for (const uint64_t word : words_) sum += std::popcount(word);
    return sum;
  }

  constexpr ByteSet& operator|=(const ByteSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  constexpr bool operator==(const ByteSet&) const = default;
  constexpr auto operator<=>(const ByteSet&) const = default;

  constexpr const std::array<uint64_t, 4>& words() const { return words_; }

 private:
  std::array<uint64_t, 4> words_{};
};

}  // namespace kvant::grammar
