// The positions that a window sees and keeps, and the blocks that it needs.
#include "engine/kv/policies/window.h"

#include <algorithm>

#include <fmt/format.h>

namespace kvant::kv {

std::string Window::Describe() const { return fmt::format("window {}", window()); }

int64_t Window::FirstVisible(int64_t position) const {
  return std::max<int64_t>(0, position - window() + 1);
}

int64_t Window::Needed(int64_t context, int64_t chunk) const {
  // Before a pass the table holds the window and the slack; the pass adds `chunk` positions before
  // anything is dropped. The first of all these positions may be the last one of its block.
  const int64_t ring = BlocksFor(window() + kRewindSlack + chunk - 1 + kBlockTokens - 1);
  return std::min(BlocksFor(context), ring);
}

int64_t Window::NeededForReplay(int64_t context) const {
  // Passes end where blocks do (ReplayPiece): before a whole block is computed the table reaches
  // back over window and slack from its beginning.
  return std::min(BlocksFor(context), BlocksFor(window() - 1 + kRewindSlack) + 1);
}

int64_t Window::RewindLimit(const BlockTable& table) const {
  return table.first_position == 0 ? 0 : table.first_position + window() - 1;
}

}  // namespace kvant::kv
