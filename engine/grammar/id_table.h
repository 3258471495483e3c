// A table of numbers by the hash of what they stand for: a hash set with open addressing, whose
// owner keeps the things themselves and compares them. An entry takes 11 to 16 bytes.
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
    const auto low = static_cast<uint32_t>(hash);
    for (size_t at = FirstPlace(low);; at = NextPlace(at)) {
      const Place& place = places_[at];
      if (place.id == kNone) return kNone;
      if (place.low == low && is_it(place.id)) return place.id;
    }
  }

  // Adds a number that is not there yet.
  void Add(uint64_t hash, uint32_t id) {
    if (4 * (count_ + 1) > 3 * places_.size()) Grow();
    Put({static_cast<uint32_t>(hash), id});
    ++count_;
  }

  void Clear() {
    places_ = {};
    count_ = 0;
  }
  size_t bytes() const { return places_.capacity() * sizeof(Place); }

 private:
  struct Place {
    uint32_t low = 0;  // of the hash, by which a place is found, and which spares most comparisons
    uint32_t id = kNone;
  };

  size_t FirstPlace(uint32_t low) const { return uint64_t{low} * places_.size() >> 32; }
  size_t NextPlace(size_t at) const { return at + 1 < places_.size() ? at + 1 : 0; }

  void Put(const Place& place) {
    size_t at = FirstPlace(place.low);
    while (places_[at].id != kNone) at = NextPlace(at);
    places_[at] = place;
  }

  void Grow() {
    constexpr size_t kFirst = 16;
    std::vector<Place> old(places_.empty() ? kFirst : places_.size() + places_.size() / 2);
    std::swap(old, places_);
    for (const Place& place : old) {
      if (place.id != kNone) Put(place);
    }
  }

  std::vector<Place> places_;
  size_t count_ = 0;
};

// Makes room for `more` entries of a list that grows for as long as texts are read: by a quarter,
// where std::vector takes twice the memory.
template <class T>
void GrowByQuarter(std::vector<T>& list, size_t more) {
  const size_t needed = list.size() + more;
  if (needed > list.capacity()) list.reserve(needed + needed / 4);
}

}  // namespace kvant::grammar
