// Finds the position of a name in a list, and the duplicates when it is built. A sorted list, not a
// hash table: building stays O(n log n) for names chosen by an attacker as well.
//
// The names are views; their bytes must outlive the index. Thread-safety: const after Build.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace kvant::formats {

class NameIndex {
 public:
  // Two positions that hold the same name.
  struct Duplicate {
    size_t first;
    size_t second;
  };

  // Indexes name(items[i]) as i for every item. Returns a duplicate if there is one.
  template <class Items, class Name>
  std::optional<Duplicate> Build(const Items& items, Name name) {
    entries_.clear();
    entries_.reserve(items.size());
    for (size_t i = 0; i < items.size(); ++i) entries_.emplace_back(name(items[i]), i);
    std::sort(entries_.begin(), entries_.end());
    const auto same = std::adjacent_find(
        entries_.begin(), entries_.end(),
        [](const Entry& left, const Entry& right) { return left.first == right.first; });
    if (same == entries_.end()) return std::nullopt;
    return Duplicate{same[0].second, same[1].second};
  }

  std::optional<size_t> Find(std::string_view name) const {
    const auto entry = std::lower_bound(
        entries_.begin(), entries_.end(), name,
        [](const Entry& left, std::string_view right) { return left.first < right; });
    if (entry == entries_.end() || entry->first != name) return std::nullopt;
    return entry->second;
  }

 private:
  using Entry = std::pair<std::string_view, size_t>;
  std::vector<Entry> entries_;
};

}  // namespace kvant::formats
