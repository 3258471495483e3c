#include "quant/trellis_tree.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <span>

#include "quant/trellis.h"

namespace kvant::quant {
namespace {

enum class Signs : uint8_t { kKept, kApart };

// The indices [first, first + count), a multiple of 16^3.
class TreeBuilder {
 public:
  TreeBuilder(int dims, int first, int count, Signs signs)
      : dims_(dims), first_(first), numbers_(static_cast<size_t>(count) * 8) {
    for (int i = 0; i < count; ++i) {
      for (int k = 0; k < dims; ++k) {
        const int number = TrellisNumber(static_cast<uint32_t>(first + i), k);
        numbers_[static_cast<size_t>(i) * 8 + static_cast<size_t>(k)] =
            static_cast<int8_t>(signs == Signs::kApart ? std::abs(number) : number);
      }
    }
    order_.resize(static_cast<size_t>(count));
    std::iota(order_.begin(), order_.end(), 0);
  }

  TrellisTree Build() {
    Halve(order_);
    TrellisTree tree;
    tree.dims = dims_;
    constexpr size_t kFanout = TrellisTree::kFanout;
    const size_t top_points = kFanout * kFanout * kFanout;
    tree.top = static_cast<int>(order_.size() / top_points);
    AddBoxes(order_, top_points, tree);
    for (size_t i = 0; i < order_.size(); i += top_points) {
      AddBoxes(Range(i, top_points), kFanout * kFanout, tree);
    }
    for (size_t i = 0; i < order_.size(); i += kFanout * kFanout) {
      AddBoxes(Range(i, kFanout * kFanout), kFanout, tree);
    }
    for (size_t i = 0; i < order_.size(); i += kFanout) {
      for (int k = 0; k < dims_; ++k) {
        for (const int point : Range(i, kFanout)) {
          tree.points.push_back(static_cast<float>(Number(point, k)));
        }
      }
    }
    for (const int point : order_) tree.indices.push_back(static_cast<uint16_t>(first_ + point));
    return tree;
  }

 private:
  int Number(int point, int k) const {
    return numbers_[static_cast<size_t>(point) * 8 + static_cast<size_t>(k)];
  }
  std::span<int> Range(size_t begin, size_t count) {
    return std::span(order_).subspan(begin, count);
  }

  // The coordinate in which points differ most, by the sum of squares about their mean.
  int Widest(std::span<const int> points) const {
    int widest = 0;
    int64_t most = -1;
    for (int k = 0; k < dims_; ++k) {
      int64_t sum = 0;
      int64_t squares = 0;
      for (const int point : points) {
        const int number = Number(point, k);
        sum += number;
        squares += number * number;
      }
      const int64_t spread = squares * static_cast<int64_t>(points.size()) - sum * sum;
      if (spread <= most) continue;
      most = spread;
      widest = k;
    }
    return widest;
  }

  // Sorts points into halves, quarters and so on, down to leaves. No two are equal in the order, so
  // any library's algorithm gives the same halves.
  void Halve(std::span<int> points) {
    if (points.size() == TrellisTree::kFanout) {
      std::sort(points.begin(), points.end());
      return;
    }
    const int k = Widest(points);
    const size_t half = points.size() / 2;
    std::nth_element(points.begin(), points.begin() + static_cast<ptrdiff_t>(half), points.end(),
                     [&](int a, int b) {
                       return Number(a, k) != Number(b, k) ? Number(a, k) < Number(b, k) : a < b;
                     });
    Halve(points.first(half));
    Halve(points.last(half));
  }

  // The boxes of a node whose children have so many points each.
  void AddBoxes(std::span<const int> points, size_t of_child, TrellisTree& tree) const {
    for (int k = 0; k < dims_; ++k) {
      float least[TrellisTree::kFanout];
      float greatest[TrellisTree::kFanout];
      std::fill(std::begin(least), std::end(least), std::numeric_limits<float>::infinity());
      std::fill(std::begin(greatest), std::end(greatest), std::numeric_limits<float>::infinity());
      for (size_t c = 0; c < points.size() / of_child; ++c) {
        const auto child = points.subspan(c * of_child, of_child);
        const auto [low, high] = std::minmax_element(
            child.begin(), child.end(), [&](int a, int b) { return Number(a, k) < Number(b, k); });
        least[c] = static_cast<float>(Number(*low, k));
        greatest[c] = static_cast<float>(Number(*high, k));
      }
      tree.boxes.insert(tree.boxes.end(), std::begin(least), std::end(least));
      tree.boxes.insert(tree.boxes.end(), std::begin(greatest), std::end(greatest));
    }
  }

  int dims_;
  int first_;
  std::vector<int8_t> numbers_;  // [count][8]
  std::vector<int> order_;
};

TrellisTree BuildTree(int dims, int first, int count, Signs signs = Signs::kKept) {
  return TreeBuilder(dims, first, count, signs).Build();
}

}  // namespace

const TrellisTree& TreeOfIq1Kt() {
  static const TrellisTree tree = BuildTree(8, 0, 1 << 13);
  return tree;
}

const TrellisTree& TreeOfIq2Kt() {
  static const TrellisTree tree = BuildTree(8, 0, 1 << 16);
  return tree;
}

const TrellisTree& TreeOfIq3Kt() {
  static const TrellisTree tree = BuildTree(8, 0, 1 << 16, Signs::kApart);
  return tree;
}

const TrellisTree& TreeOfIq4Kt(int bit) {
  static const TrellisTree clear = BuildTree(4, 0, 1 << 15);
  static const TrellisTree set = BuildTree(4, 1 << 15, 1 << 15);
  return bit == 0 ? clear : set;
}

}  // namespace kvant::quant
