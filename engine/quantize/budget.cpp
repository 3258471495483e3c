#include "engine/quantize/budget.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "base/result.h"

namespace kvant::quantize {
namespace {

using Item = std::vector<BudgetCandidate>;

constexpr double kNever = std::numeric_limits<double>::infinity();

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

  // Begins from another choice that fits.
  void Begin(const std::vector<size_t>& chosen) {
    for (size_t i = 0; i < items_.size(); ++i) Set(i, chosen[i]);
  }

  // `progress` gets the part of the improvements that may follow.
  Status ImproveAll(const BudgetProgress& progress) {
    for (int i = 0; i < kImprovementsMax; ++i) {
      if (progress) KVANT_TRY(progress(static_cast<double>(i) / kImprovementsMax));
      if (!Improve()) break;
    }
    return {};
  }

  double TotalError() const {
    double error = 0;
    for (size_t i = 0; i < items_.size(); ++i) error += Now(i).error;
    return error;
  }

  std::vector<size_t> Take() { return std::move(chosen_); }

 private:
  // Each improvement looks at all changes of two items.
  static constexpr int kImprovementsMax = 200;

  // An item in a smaller candidate.
  struct Payment {
    int64_t bytes = 0;  // that it gives back
    double cost = 0;    // the error that it adds
    size_t item = 0;
    size_t to = 0;

    bool CheaperThan(const Payment& other) const {
      if (cost != other.cost) return cost < other.cost;
      return item != other.item ? item < other.item : to < other.to;
    }
  };
  // The cheapest payments of `bytes` or more, of two different items.
  struct CheapestFrom {
    int64_t bytes = 0;
    Payment first;
    Payment second;  // of another item
  };

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
    ListPayments();
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
        const Payment payment = Cheapest(more - Left(), i);
        if (gain - payment.cost <= best.gain) continue;
        best = {gain - payment.cost, i, to, payment.item, payment.to};
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

  // Lists what all items could pay, the most bytes first, and the cheapest of each beginning of the
  // list.
  void ListPayments() {
    std::vector<Payment> payments;
    for (size_t j = 0; j < items_.size(); ++j) {
      for (size_t to = 0; to < items_[j].size(); ++to) {
        const int64_t bytes = -Grows(j, to);
        if (bytes > 0) payments.push_back({bytes, items_[j][to].error - Now(j).error, j, to});
      }
    }
    std::sort(payments.begin(), payments.end(),
              [](const Payment& a, const Payment& b) { return a.bytes > b.bytes; });
    cheapest_.clear();
    const Payment none{.bytes = 0, .cost = kNever, .item = items_.size(), .to = 0};
    CheapestFrom now{.bytes = 0, .first = none, .second = none};
    for (const Payment& payment : payments) {
      now.bytes = payment.bytes;
      if (payment.CheaperThan(now.first)) {
        if (payment.item != now.first.item) now.second = now.first;
        now.first = payment;
      } else if (payment.item != now.first.item && payment.CheaperThan(now.second)) {
        now.second = payment;
      }
      if (!cheapest_.empty() && cheapest_.back().bytes == now.bytes) cheapest_.pop_back();
      cheapest_.push_back(now);
    }
  }

  // The payment of another item that gives back at least `needed` bytes for the least error; of
  // infinite cost where there is none.
  Payment Cheapest(int64_t needed, size_t item) const {
    const auto after =
        std::partition_point(cheapest_.begin(), cheapest_.end(),
                             [needed](const CheapestFrom& entry) { return entry.bytes >= needed; });
    if (after == cheapest_.begin()) return {.bytes = 0, .cost = kNever, .item = item, .to = 0};
    const CheapestFrom& entry = *std::prev(after);
    return entry.first.item != item ? entry.first : entry.second;
  }

  std::span<const Item> items_;
  uint64_t bytes_max_;
  uint64_t bytes_ = 0;
  std::vector<std::vector<size_t>> hulls_;
  std::vector<size_t> chosen_;
  std::vector<CheapestFrom> cheapest_;  // by bytes, falling; for one improvement
};

// The best choice where bytes are counted in units, a candidate's bytes rounded up: exact but for
// the rounding. A state (items so far, units so far) is looked at only where the other items can
// use up the units that are left.
class UnitTable {
 public:
  UnitTable(std::span<const Item> items, uint64_t bytes_max)
      : items_(items), unit_(std::max<uint64_t>(1, bytes_max / kUnits)), units_(bytes_max / unit_) {
    for (const Item& item : items) {
      const auto [least, most] = UnitsOf(item);
      least_after_ += least;
      most_after_ += most;
    }
  }

  // Nothing where the rounded bytes of the smallest candidates do not fit, or no error is finite.
  Result<std::optional<std::vector<size_t>>> Solve(const BudgetProgress& progress) {
    if (least_after_ > units_) return std::optional<std::vector<size_t>>();
    error_.assign(units_ + 1, 0);
    for (const Item& item : items_) {
      if (progress) {
        KVANT_TRY(
            progress(static_cast<double>(taken_.size()) / static_cast<double>(items_.size())));
      }
      Add(item);
    }
    if (!std::isfinite(error_[units_])) return std::optional<std::vector<size_t>>();
    std::vector<size_t> chosen(items_.size());
    uint64_t left = units_;
    for (size_t i = items_.size(); i-- > 0;) {
      chosen[i] = taken_[i].numbers[left - taken_[i].begin];
      left -= UnitsOf(items_[i][chosen[i]]);
    }
    return std::optional(std::move(chosen));
  }

 private:
  static constexpr uint64_t kUnits = uint64_t{1} << 15;
  // The number of a candidate is a byte. No matrix has this many types.
  static constexpr size_t kCandidatesMax = 256;

  // Candidates taken of an item, by the units of it and the items before: from unit `begin` on.
  struct Taken {
    uint64_t begin = 0;
    std::vector<uint8_t> numbers;
  };

  uint64_t UnitsOf(const BudgetCandidate& candidate) const {
    return (candidate.bytes + unit_ - 1) / unit_;
  }

  static std::span<const BudgetCandidate> Looked(const Item& item) {
    return std::span(item).first(std::min(item.size(), kCandidatesMax));
  }

  // The least and the most that an item may take.
  std::pair<uint64_t, uint64_t> UnitsOf(const Item& item) const {
    uint64_t least = ~uint64_t{0};
    uint64_t most = 0;
    for (const BudgetCandidate& candidate : Looked(item)) {
      least = std::min(least, UnitsOf(candidate));
      most = std::max(most, UnitsOf(candidate));
    }
    return {least, most};
  }

  // Whether a candidate before this one takes no more units for no more error.
  bool BeatenBefore(const Item& item, size_t c) const {
    return std::any_of(
        item.begin(), item.begin() + static_cast<ptrdiff_t>(c), [&](const BudgetCandidate& before) {
          return before.error <= item[c].error && UnitsOf(before) <= UnitsOf(item[c]);
        });
  }

  void Add(const Item& item) {
    const auto [least, most] = UnitsOf(item);
    least_after_ -= least;
    most_after_ -= most;
    // Below `begin` the items to come leave units over, beyond `end` they do not fit.
    const uint64_t begin = units_ - std::min(units_, most_after_);
    const uint64_t end = units_ - least_after_ + 1;
    next_.assign(units_ + 1, kNever);
    number_.assign(units_ + 1, 0);
    for (size_t c = 0; c < Looked(item).size(); ++c) {
      if (BeatenBefore(item, c)) continue;
      const uint64_t takes = UnitsOf(item[c]);
      const double* from = error_.data();
      for (uint64_t u = std::max(begin, takes); u < end; ++u) {
        const double error = from[u - takes] + item[c].error;
        const bool better = error < next_[u];
        next_[u] = better ? error : next_[u];
        number_[u] = better ? static_cast<double>(c) : number_[u];
      }
    }
    Taken& taken = taken_.emplace_back(Taken{begin, {}});
    taken.numbers.reserve(end - begin);
    for (uint64_t u = begin; u < end; ++u)
      taken.numbers.push_back(static_cast<uint8_t>(number_[u]));
    std::swap(error_, next_);
  }

  std::span<const Item> items_;
  uint64_t unit_;
  uint64_t units_;
  uint64_t least_after_ = 0;  // units that the items to come take at least, and at most
  uint64_t most_after_ = 0;
  std::vector<double> error_;  // [units_ + 1]: the least error of the items so far in so many units
  std::vector<double> next_;   // the same with one more item
  std::vector<double> number_;  // its candidate; as wide as an error, so that vectors hold both
  std::vector<Taken> taken_;    // of each item so far
};

}  // namespace

Result<std::vector<size_t>> ChooseWithin(std::span<const Item> items, uint64_t bytes_max,
                                         const BudgetProgress& progress) {
  Choice climbed(items, bytes_max);
  if (!climbed.Fits()) {
    return MakeError(ErrorCode::kInvalid,
                     "the smallest candidates take {} bytes, expected {} or less",
                     LeastBytes(items), bytes_max);
  }
  // About what each of the parts takes.
  const auto part = [&](double begin, double end) -> BudgetProgress {
    if (!progress) return {};
    return [&progress, begin, end](double done) { return progress(begin + (end - begin) * done); };
  };
  climbed.Climb();
  KVANT_TRY(climbed.ImproveAll(part(0, 0.25)));
  KVANT_ASSIGN(const auto in_units, UnitTable(items, bytes_max).Solve(part(0.25, 0.75)));
  if (!in_units.has_value()) return climbed.Take();
  Choice counted(items, bytes_max);
  counted.Begin(*in_units);
  KVANT_TRY(counted.ImproveAll(part(0.75, 1)));
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
