#include "engine/graph/attention/choice.h"

#include <bit>
#include <functional>

namespace kvant::graph {
namespace {

// A number that grows with the score; 0 for what is not chosen.
uint32_t Rank(float score) {
  const auto bits = std::bit_cast<uint32_t>(score + 0.0f);  // zeros are equal
  constexpr uint32_t kSign = 0x80000000;
  constexpr uint32_t kMinusInfinity = 0xff800000;
  constexpr uint32_t kInfinity = 0x7f800000;
  if ((bits & ~kSign) > kInfinity || bits == kMinusInfinity) return 0;
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

}  // namespace

void ChooseBest(std::span<const float> scores, int64_t most, std::span<uint32_t> order,
                int32_t* choice) {
  const std::span<uint32_t> ranks = order.first(scores.size());
  std::ranges::transform(scores, ranks.begin(), Rank);
  uint32_t last = 0;  // the rank of the last that is chosen, and how many have it
  int64_t of_last = 0;
  if (std::ssize(scores) > most) {
    const auto at = ranks.begin() + (most - 1);
    std::ranges::nth_element(ranks, at, std::greater<>());
    last = *at;
    of_last = most - std::count_if(ranks.begin(), at, [last](uint32_t r) { return r > last; });
  }
  int32_t* next = choice + 1;
  for (size_t i = 0; i < scores.size(); ++i) {
    const uint32_t rank = Rank(scores[i]);
    if (rank == 0 || rank < last || (rank == last && of_last-- <= 0)) continue;
    *next++ = static_cast<int32_t>(i);
  }
  *choice = static_cast<int32_t>(next - choice - 1);
}

}  // namespace kvant::graph
