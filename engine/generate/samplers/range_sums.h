// Finds where the sum of weights in the order of a key is enough, without sorting by the key.
//
// Keys from 0 to a largest one are cut into ranges of equal width. The weights of each range are
// summed; then only the entries of one range need be sorted. Sums are integers, so they do not
// depend on the order of entries.
//
// Thread-safety: one thread at a time per object.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvant {

class RangeSums {
 public:
  static constexpr size_t kRanges = 1024;  // their sums stay in the first-level cache
  static constexpr uint16_t kNoRange = UINT16_MAX;

  // The range in which the sum becomes enough, and the entries of all ranges before it. `range` is
  // kRanges where all entries together are not enough.
  struct Cut {
    size_t range;
    uint64_t sum_before;
    size_t count_before;
  };

  // Begins anew with `count` entries, of keys from 0 to `most` and weights. An entry without weight
  // is in no range; a greater key never has a lower range.
  template <class Key, class Weight>
  void Fill(size_t count, double most, const Key& key, const Weight& weight) {
    const double per_range = most > 0 ? static_cast<double>(kRanges - 1) / most : 0;
    sums_.fill(0);
    counts_.fill(0);
    ranges_.resize(count);
    uint16_t* const ranges = ranges_.data();
    for (size_t i = 0; i < count; ++i) {
      const uint64_t added = weight(i);
      if (added == 0) {
        ranges[i] = kNoRange;
        continue;
      }
      const auto range = static_cast<uint32_t>(static_cast<int32_t>(key(i) * per_range));
      ranges[i] = static_cast<uint16_t>(range);
      sums_[range] += added;
      ++counts_[range];
    }
  }

  // enough(sum, count) is true from some sum and count on.
  template <class Enough>
  Cut Find(const Enough& enough) const {
    Cut cut = {0, 0, 0};
    for (; cut.range < kRanges; ++cut.range) {
      const uint64_t sum = cut.sum_before + sums_[cut.range];
      const size_t count = cut.count_before + counts_[cut.range];
      if (counts_[cut.range] > 0 && enough(sum, count)) break;
      cut.sum_before = sum;
      cut.count_before = count;
    }
    return cut;
  }

  // Takes an entry out of its range.
  void Leave(size_t entry) { ranges_[entry] = kNoRange; }

  // The range of each entry.
  std::span<const uint16_t> ranges() const { return ranges_; }

 private:
  std::array<uint64_t, kRanges> sums_{};
  std::array<uint32_t, kRanges> counts_{};
  std::vector<uint16_t> ranges_;
};

}  // namespace kvant
