// The positions that sections see and keep, and the blocks that they need.
#include "engine/kv/policies/sections.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace kvant::kv {
namespace {

// Sections begin at all multiples of this number in some block.
int64_t BorderStep(int64_t window) { return std::gcd(window, kBlockTokens); }

}  // namespace

std::string Sections::Describe() const { return fmt::format("sections of {}", window()); }

int64_t Sections::DependsFrom(int64_t position, int64_t /*layers*/) const {
  return position < 0 ? 0 : FirstVisible(position);
}

int64_t Sections::Needed(int64_t context, int64_t chunk) const {
  // Before a pass the table holds up to a position less than a section and the slack; the pass adds
  // `chunk` positions before anything is dropped. The section may begin at the last border in its
  // block.
  const int64_t before = kBlockTokens - BorderStep(window());
  const int64_t ring = BlocksFor(before + window() - 1 + kRewindSlack + chunk);
  return std::min(BlocksFor(context), ring);
}

int64_t Sections::NeededForReplay(int64_t context) const {
  // Passes end where blocks do (ReplayPiece): before a whole block is computed, the slack ends with
  // a block and reaches back into a section at one of its borders.
  const int64_t reach = window() - BorderStep(window()) + kRewindSlack;
  return std::min(BlocksFor(context), BlocksFor(reach) + 1);
}

int64_t Sections::RewindLimit(const BlockTable& table) const {
  // The shortest length is the beginning of a section that the table holds from its beginning.
  return (table.first_position + window() - 1) / window() * window();
}

// A table holds the most before the position at which it drops a section.
PositionRange Sections::FullestPass(int64_t at, int64_t /*piece*/) const {
  const int64_t kept = FirstVisible(std::max<int64_t>(0, at - kRewindSlack));
  const int64_t drop = kept + window() + kRewindSlack;
  return {drop - 1, drop};
}

}  // namespace kvant::kv
