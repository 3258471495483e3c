// A table of numbers by the hash of what they stand for: a hash set with open addressing, whose
// owner keeps the things themselves and compares them. An entry takes some 12 bytes.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvant::grammar {

class IdTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // The number with this hash for which is_it(number) is true; kNone: there is none.
  template <class IsIt>
  uint32_t Find(uint64_t hash, const IsIt& is_it) const {
    if (places_.empty()) return kNone;
    const auto mark = MarkOf(hash);
    for (size_t at = hash & mask();; at = (at + 1) & mask()) {
      const Place& place = places_[at];
      if (place.id == kNone) return kNone;
      if (place.mark == mark && is_it(place.id)) return place.id;
    }
  }

  // Adds a number that is not there yet.
  void Add(uint64_t hash, uint32_t id) {
    if (2 * (count_ + 1) > places_.size()) Grow();
    Put({MarkOf(hash), static_cast<uint32_t>(hash), id});
    ++count_;
  }

  void Clear() {
    places_ = {};
    count_ = 0;
  }
  size_t bytes() const { return places_.capacity() * sizeof(Place); }

 private:
  struct Place {
    uint32_t mark = 0;  // of the hash, which spares most comparisons
    uint32_t low = 0;   // of the hash, by which a place is found
    uint32_t id = kNone;
  };

  static uint32_t MarkOf(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  size_t mask() const { return places_.size() - 1; }

  void Put(const Place& place) {
    size_t at = place.low & mask();
    while (places_[at].id != kNone) at = (at + 1) & mask();
    places_[at] = place;
  }

  void Grow() {
    constexpr size_t kFirst = 16;
    std::vector<Place> old(places_.empty() ? kFirst : 2 * places_.size());
    std::swap(old, places_);
    for (const Place& place : old) {
      if (place.id != kNone) Put(place);
    }
  }

  std::vector<Place> places_;  // a power of two of them
  size_t count_ = 0;
};

}  // namespace kvant::grammar
