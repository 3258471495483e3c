#include "engine/quantize/budget.h"

#include <algorithm>
#include <limits>

#include "base/result.h"

namespace kvant::quantize {
namespace {

using Item = std::vector<BudgetCandidate>;

// The candidates of an item that a weighted sum of bytes and error can make the best one, in the
// order of their bytes: errors fall, and each byte is worth less than the one before.
std::vector<size_t> LowerHull(const Item& item) {
  std::vector<size_t> order(item.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return item[a].bytes != item[b].bytes ? item[a].bytes < item[b].bytes
                                          : item[a].error < item[b].error;
  });
  const auto worth = [&](size_t from, size_t to) {
    return (item[from].error - item[to].error) /
           static_cast<double>(item[to].bytes - item[from].bytes);
  };
  std::vector<size_t> hull;
  for (const size_t i : order) {
    if (!hull.empty() && item[i].error >= item[hull.back()].error) continue;
    while (hull.size() >= 2 && worth(hull.back(), i) >= worth(hull[hull.size() - 2], hull.back())) {
      hull.pop_back();
    }
    hull.push_back(i);
  }
  return hull;
}

// A choice in the making.
class Choice {
 public:
  Choice(std::span<const Item> items, uint64_t bytes_max) : items_(items), bytes_max_(bytes_max) {
    for (const Item& item : items) {
      KVANT_CHECK(!item.empty());
      hulls_.push_back(LowerHull(item));
      chosen_.push_back(hulls_.back().front());
      bytes_ += item[chosen_.back()].bytes;
    }
  }

  bool Fits() const { return bytes_ <= bytes_max_; }

  // Steps along the hulls while the next one fits, the most worth for a byte first. An item whose
  // next step does not fit stays; smaller steps of others may still.
  void Climb() {
    std::vector<size_t> at(items_.size(), 0);
    std::vector<bool> open(items_.size(), true);
    while (true) {
      size_t best = items_.size();
      double best_worth = 0;
      for (size_t i = 0; i < items_.size(); ++i) {
        if (!open[i] || at[i] + 1 == hulls_[i].size()) continue;
        const double worth = Worth(i, hulls_[i][at[i] + 1]);
        if (best < items_.size() && worth <= best_worth) continue;
        best = i;
        best_worth = worth;
      }
      if (best == items_.size()) return;
      const size_t next = hulls_[best][at[best] + 1];
      if (bytes_ + items_[best][next].bytes - Now(best).bytes > bytes_max_) {
        open[best] = false;
        continue;
      }
      Set(best, next);
      ++at[best];
    }
  }

  // From another choice that fits.
  void Begin(const std::vector<size_t>& chosen) {
    for (size_t i = 0; i < items_.size(); ++i) Set(i, chosen[i]);
  }

  void ImproveAll() {
    for (int i = 0; i < kImprovementsMax && Improve(); ++i) {
    }
  }

  double TotalError() const {
    double error = 0;
    for (size_t i = 0; i < items_.size(); ++i) error += Now(i).error;
    return error;
  }

  std::vector<size_t> Take() { return std::move(chosen_); }

 private:
  // Each improvement looks at all pairs of items.
  static constexpr int kImprovementsMax = 200;

  struct Change {
    double gain = 0;
    size_t item = 0;
    size_t to = 0;
    size_t payer = 0;
    size_t payer_to = 0;
  };

  // The change of one item, or of one that grows and one that pays for it, that lowers the error
  // most; whether there is one.
  bool Improve() {
    Change best;
    for (size_t i = 0; i < items_.size(); ++i) {
      for (size_t to = 0; to < items_[i].size(); ++to) {
        const double gain = Now(i).error - items_[i][to].error;
        if (gain <= best.gain) continue;
        const int64_t more = Grows(i, to);
        if (more <= Left()) {
          best = {gain, i, to, i, to};
          continue;
        }
        FindPayer(i, to, more - Left(), gain, best);
      }
    }
    // Sums of many errors are not exact; a change must be worth more than that.
    if (best.gain <= 1e-12 * TotalError()) return false;
    Set(best.item, best.to);
    if (best.payer != best.item) Set(best.payer, best.payer_to);
    return true;
  }

  const BudgetCandidate& Now(size_t i) const { return items_[i][chosen_[i]]; }
  int64_t Left() const { return static_cast<int64_t>(bytes_max_ - bytes_); }
  int64_t Grows(size_t i, size_t to) const {
    return static_cast<int64_t>(items_[i][to].bytes) - static_cast<int64_t>(Now(i).bytes);
  }
  double Worth(size_t i, size_t to) const {
    return (Now(i).error - items_[i][to].error) / static_cast<double>(Grows(i, to));
  }
  void Set(size_t i, size_t to) {
    bytes_ = bytes_ - Now(i).bytes + items_[i][to].bytes;
    chosen_[i] = to;
  }

  // Another item that gives back at least `needed` bytes for less error than `gain`.
  void FindPayer(size_t item, size_t to, int64_t needed, double gain, Change& best) const {
    for (size_t j = 0; j < items_.size(); ++j) {
      if (j == item) continue;
      for (size_t down = 0; down < items_[j].size(); ++down) {
        if (-Grows(j, down) < needed) continue;
        const double net = gain - (items_[j][down].error - Now(j).error);
        if (net > best.gain) best = {net, item, to, j, down};
      }
    }
  }

  std::span<const Item> items_;
  uint64_t bytes_max_;
  uint64_t bytes_ = 0;
  std::vector<std::vector<size_t>> hulls_;
  std::vector<size_t> chosen_;
};

// The best choice where bytes are counted in units, those of a candidate rounded up: exact but for
// the rounding. Nothing where the rounded bytes of the smallest candidates do not fit.
std::optional<std::vector<size_t>> ChooseInUnits(std::span<const Item> items, uint64_t bytes_max) {
  constexpr uint64_t kUnits = uint64_t{1} << 15;
  const uint64_t unit = std::max<uint64_t>(1, bytes_max / kUnits);
  const size_t units = static_cast<size_t>(bytes_max / unit);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // least[u]: the least error of the items so far in u units.
  std::vector<double> least(units + 1, 0);
  std::vector<std::vector<uint8_t>> taken;
  for (const Item& item : items) {
    std::vector<double> next(units + 1, kNever);
    auto& choice = taken.emplace_back(units + 1, uint8_t{0});
    for (size_t c = 0; c < std::min<size_t>(item.size(), 255); ++c) {
      const size_t takes = static_cast<size_t>((item[c].bytes + unit - 1) / unit);
      for (size_t u = takes; u <= units; ++u) {
        const double error = least[u - takes] + item[c].error;
        if (error >= next[u]) continue;
        next[u] = error;
        choice[u] = static_cast<uint8_t>(c);
      }
    }
    least = std::move(next);
  }
  if (least[units] == kNever) return std::nullopt;
  std::vector<size_t> chosen(items.size());
  size_t left = units;
  for (size_t i = items.size(); i-- > 0;) {
    chosen[i] = taken[i][left];
    left -= static_cast<size_t>((items[i][chosen[i]].bytes + unit - 1) / unit);
  }
  return chosen;
}

}  // namespace

std::optional<std::vector<size_t>> ChooseWithin(std::span<const Item> items, uint64_t bytes_max) {
  Choice climbed(items, bytes_max);
  if (!climbed.Fits()) return std::nullopt;
  climbed.Climb();
  climbed.ImproveAll();
  const auto in_units = ChooseInUnits(items, bytes_max);
  if (!in_units.has_value()) return climbed.Take();
  Choice counted(items, bytes_max);
  counted.Begin(*in_units);
  counted.ImproveAll();
  return counted.TotalError() < climbed.TotalError() ? counted.Take() : climbed.Take();
}

uint64_t LeastBytes(std::span<const Item> items) {
  uint64_t bytes = 0;
  for (const Item& item : items) bytes += item[LowerHull(item).front()].bytes;
  return bytes;
}

uint64_t MostBytes(std::span<const Item> items) {
  uint64_t bytes = 0;
  for (const Item& item : items) bytes += item[LowerHull(item).back()].bytes;
  return bytes;
}

}  // namespace kvant::quantize
