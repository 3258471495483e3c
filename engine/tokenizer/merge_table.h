// The merges of byte-level BPE: which two neighbouring tokens join to which third, and in what
// order of preference. A merge's rank is its place in the file; the lowest is done first.
//
// An open-addressing hash table of ranks over the list of merges, 16 to 28 bytes per merge.
// Thread-safety: const after the last Insert.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "kvant/tokenizer.h"

namespace kvant {

struct Merge {
  TokenId left = 0;
  TokenId right = 0;
  TokenId result = 0;
};

class MergeTable {
 public:
  static constexpr int32_t kNone = -1;

  MergeTable() : MergeTable(0) {}
  explicit MergeTable(size_t merges) : places_(std::bit_ceil(merges * 2 + 2), kNone) {
    merges_.reserve(merges);
    shift_ = 64 - std::bit_width(places_.size() - 1);
  }

  // Gives the merge the next rank. Of equal pairs the first counts. No more than the constructor's
  // number may be inserted.
  void Insert(const Merge& merge) {
    int32_t& place = places_[FindPlace(merge.left, merge.right)];
    if (place == kNone) place = static_cast<int32_t>(merges_.size());
    merges_.push_back(merge);
  }

  // The rank of the pair, or kNone.
  int32_t Rank(TokenId left, TokenId right) const { return places_[FindPlace(left, right)]; }

  const Merge& operator[](int32_t rank) const { return merges_[static_cast<size_t>(rank)]; }

 private:
  size_t FindPlace(TokenId left, TokenId right) const {
    const uint64_t key =
        (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
    // Fibonacci hashing (Knuth, volume 3, 6.4), after mixing the halves.
    size_t place = ((key ^ (key >> 29)) * 0x9E3779B97F4A7C15u) >> shift_;
    const auto is_other = [&](int32_t rank) {
      const Merge& merge = merges_[static_cast<size_t>(rank)];
      return merge.left != left || merge.right != right;
    };
    while (places_[place] != kNone && is_other(places_[place]))
      place = (place + 1) & (places_.size() - 1);
    return place;
  }

  std::vector<Merge> merges_;
  std::vector<int32_t> places_;
  int shift_ = 0;
};

}  // namespace kvant
