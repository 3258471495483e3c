#include "quant/search/trellis_cells.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <span>

#include "quant/formats/trellis.h"

namespace kvant::quant {
namespace {

enum class Signs : uint8_t { kKept, kApart };

// The indices [first, first + count), a multiple of 16^3.
class CellsBuilder {
 public:
  CellsBuilder(int dims, int first, int count, Signs signs)
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

  TrellisCells Build() {
    constexpr size_t kOfLeaf = TrellisCells::kFanout;
    constexpr size_t kOfCell = kOfLeaf * TrellisCells::kFanout;
    Halve(order_);
    TrellisCells cells;
    cells.dims = dims_;
    cells.count = static_cast<int>(order_.size() / kOfCell);
    AddBoxes(kOfCell, cells.cells);
    AddBoxes(kOfLeaf, cells.leaves);
    AddMeans(cells.means);
    AddPoints(cells.points);
    for (const int point : order_) cells.indices.push_back(static_cast<uint16_t>(first_ + point));
    return cells;
  }

 private:
  int Number(int point, int k) const {
    return numbers_[static_cast<size_t>(point) * 8 + static_cast<size_t>(k)];
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
    if (points.size() == TrellisCells::kFanout) {
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

  // Writes the box of each `count` consecutive points.
  void AddBoxes(size_t count, std::vector<uint8_t>& boxes) const {
    constexpr size_t kFanout = TrellisCells::kFanout;
    constexpr int kOrder[] = {0, 2, 1, 3};
    boxes.resize(order_.size() / count * static_cast<size_t>(dims_) * 2);
    size_t at = 0;
    for (size_t begin = 0; begin < order_.size(); begin += kFanout * count) {
      for (int four = 0; four < dims_; four += 4, at += 8 * kFanout) {
        for (size_t i = 0; i < 4 * kFanout; ++i) {
          const auto points = std::span(order_).subspan(begin + i / 4 * count, count);
          const int k = four + kOrder[i % 4];
          const auto [low, high] =
              std::minmax_element(points.begin(), points.end(),
                                  [&](int a, int b) { return Number(a, k) < Number(b, k); });
          boxes[at + i] = static_cast<uint8_t>(128 + Number(*low, k));
          boxes[at + 4 * kFanout + i] = static_cast<uint8_t>(128 + Number(*high, k));
        }
      }
    }
  }

  void AddMeans(std::vector<int8_t>& means) const {
    constexpr size_t kFanout = TrellisCells::kFanout;
    constexpr size_t kCell = kFanout * kFanout;
    for (size_t begin = 0; begin < order_.size(); begin += kFanout * kCell) {
      for (int pair = 0; pair < dims_; pair += 2) {
        for (size_t i = 0; i < 2 * kFanout; ++i) {
          int sum = 0;
          for (const int point : std::span(order_).subspan(begin + i / 2 * kCell, kCell)) {
            sum += Number(point, pair + static_cast<int>(i % 2));
          }
          means.push_back(static_cast<int8_t>(sum / static_cast<int>(kCell)));
        }
      }
    }
  }

  void AddPoints(std::vector<int8_t>& points) const {
    constexpr size_t kFanout = TrellisCells::kFanout;
    for (size_t begin = 0; begin < order_.size(); begin += kFanout) {
      for (int pair = 0; pair < dims_; pair += 2) {
        for (size_t i = 0; i < 2 * kFanout; ++i) {
          points.push_back(
              static_cast<int8_t>(Number(order_[begin + i / 2], pair + static_cast<int>(i % 2))));
        }
      }
    }
  }

  int dims_;
  int first_;
  std::vector<int8_t> numbers_;  // [count][8]
  std::vector<int> order_;
};

TrellisCells BuildCells(int dims, int first, int count, Signs signs = Signs::kKept) {
  return CellsBuilder(dims, first, count, signs).Build();
}

}  // namespace

const TrellisCells& CellsOfIq1Kt() {
  static const TrellisCells cells = BuildCells(8, 0, 1 << 13);
  return cells;
}

const TrellisCells& CellsOfIq2Kt() {
  static const TrellisCells cells = BuildCells(8, 0, 1 << 16);
  return cells;
}

const TrellisCells& CellsOfIq3Kt() {
  static const TrellisCells cells = BuildCells(8, 0, 1 << 16, Signs::kApart);
  return cells;
}

const TrellisCells& CellsOfIq4Kt(int bit) {
  static const TrellisCells clear = BuildCells(4, 0, 1 << 15);
  static const TrellisCells set = BuildCells(4, 1 << 15, 1 << 15);
  return bit == 0 ? clear : set;
}

}  // namespace kvant::quant
