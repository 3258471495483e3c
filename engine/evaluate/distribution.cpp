// e^x by reduction to |r| <= ln(2) / 2 and a polynomial, over lanes that the compiler turns into
// vectors. Sums have one partial sum per lane.
#include "engine/evaluate/distribution.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace kvant::evaluate {
namespace {

constexpr size_t kLanes = 16;

// Below this e^x is counted as zero: 1e-37 of the largest probability is less than any sum shows.
constexpr float kExpMin = -86.0f;

// e^x for x <= 0, 0 below kExpMin (and for -infinity); NaN for NaN. The coefficients are Taylor's:
// r^7 / 7! < 2^-23 / 3 for |r| <= 0.3466.
inline float Exp(float x) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e4p-1f;  // 14 bits: its product with an exponent is exact
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  constexpr float kRounder = 0x1.8p+23f;  // adding it rounds to an integer, held in the low bits
  const float clamped = x < kExpMin ? kExpMin : x;
  const float shifted = clamped * kLog2E + kRounder;
  const float exponent = shifted - kRounder;
  const float r = (clamped - exponent * kLn2High) - exponent * kLn2Low;
  float sum = 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const uint32_t scale = (std::bit_cast<uint32_t>(shifted) << 23) + (uint32_t{127} << 23);
  const float value = sum * std::bit_cast<float>(scale);
  return x < kExpMin ? 0.0f : value;
}

// term(i) for all i < count, added up lane by lane.
template <class Term>
double LaneSum(size_t count, Term term) {
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(i + lane);
  }
  for (size_t lane = 0; i < count; ++i, ++lane) sums[lane] += term(i);
  return std::accumulate(std::begin(sums), std::end(sums), 0.0);
}

float Largest(std::span<const float> values) {
  float largest[kLanes];
  std::fill(std::begin(largest), std::end(largest), values[0]);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      largest[lane] = values[i + lane] > largest[lane] ? values[i + lane] : largest[lane];
    }
  }
  for (; i < values.size(); ++i) largest[0] = std::max(largest[0], values[i]);
  return *std::max_element(std::begin(largest), std::end(largest));
}

bool Likelier(const Distribution& d, TokenId a, TokenId b) {
  const float x = d.logits[static_cast<size_t>(a)];
  const float y = d.logits[static_cast<size_t>(b)];
  return x > y || (x == y && a < b);
}

}  // namespace

Distribution Normalize(std::span<const float> logits) {
  KVANT_CHECK(!logits.empty());
  Distribution out{logits};
  const float largest = Largest(logits);
  const auto top = std::find(logits.begin(), logits.end(), largest);
  // A NaN is either the largest or the sum.
  out.top = top == logits.end() ? 0 : static_cast<TokenId>(top - logits.begin());
  const double sum =
      LaneSum(logits.size(), [&](size_t i) { return double{Exp(logits[i] - largest)}; });
  out.log_sum = largest + std::log(sum);
  return out;
}

double KlDivergence(const Distribution& base, const Distribution& other, double floor) {
  // ln p is taken apart into what fits a float exactly enough for e^x and the exact difference.
  const float base_sum = static_cast<float>(base.log_sum);
  const double shift = other.log_sum - base.log_sum;
  const float lowest = std::max(static_cast<float>(floor), -std::numeric_limits<float>::max());
  return LaneSum(base.logits.size(), [&](size_t i) {
    const float log_p = base.logits[i] - base_sum;
    const double difference = double{base.logits[i]} - double{other.logits[i]} + shift;
    const double term = double{Exp(log_p > 0.0f ? 0.0f : log_p)} * difference;
    return log_p > lowest && log_p > kExpMin ? term : 0.0;
  });
}

std::vector<TokenLogProb> TopTokens(const Distribution& distribution, size_t count) {
  std::vector<TokenId> ids(distribution.logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  count = std::min(count, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    [&](TokenId a, TokenId b) { return Likelier(distribution, a, b); });
  std::vector<TokenLogProb> top;
  for (size_t i = 0; i < count; ++i) top.push_back({ids[i], distribution.LogProb(ids[i])});
  return top;
}

int32_t Rank(const Distribution& distribution, TokenId id) {
  int32_t rank = 1;
  for (TokenId other = 0; other < static_cast<TokenId>(distribution.logits.size()); ++other) {
    rank += Likelier(distribution, other, id) ? 1 : 0;
  }
  return rank;
}

}  // namespace kvant::evaluate
