// Numbers of things as types of their own (`enum class GroupId : int32_t {}`), so that the number
// of a group is no number of a block, and vectors that only numbers of their own kind index.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace kvant {

// A number's place in an array.
template <class Id>
constexpr size_t IndexOf(Id id) {
  return static_cast<size_t>(static_cast<std::underlying_type_t<Id>>(id));
}

// The number of the place `index`.
template <class Id>
constexpr Id IdAt(size_t index) {
  return static_cast<Id>(static_cast<std::underlying_type_t<Id>>(index));
}

// The numbers [0, count).
template <class Id>
class IdRange {
 public:
  class Iterator {
   public:
    constexpr explicit Iterator(size_t at) : at_(at) {}
    constexpr Id operator*() const { return IdAt<Id>(at_); }
    constexpr Iterator& operator++() {
      ++at_;
      return *this;
    }
    constexpr bool operator==(const Iterator& other) const = default;

   private:
    size_t at_;
  };

  constexpr explicit IdRange(size_t count) : count_(count) {}
  constexpr Iterator begin() const { return Iterator(0); }
  constexpr Iterator end() const { return Iterator(count_); }

 private:
  size_t count_;
};

// A vector whose places have such numbers.
template <class Id, class T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(size_t count) : items_(count) {}
  IdVector(size_t count, const T& item) : items_(count, item) {}

  T& operator[](Id id) { return items_[IndexOf(id)]; }
  const T& operator[](Id id) const { return items_[IndexOf(id)]; }

  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  IdRange<Id> ids() const { return IdRange<Id>(items_.size()); }
  Id next_id() const { return IdAt<Id>(items_.size()); }

  void reserve(size_t count) { items_.reserve(count); }
  void resize(size_t count) { items_.resize(count); }
  void assign(size_t count, const T& item) { items_.assign(count, item); }
  void clear() { items_.clear(); }
  void push_back(T item) { items_.push_back(std::move(item)); }
  template <class... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    return items_.emplace_back(std::forward<Arguments>(arguments)...);
  }

  auto begin() { return items_.begin(); }
  auto end() { return items_.end(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<T> items_;
};

}  // namespace kvant
