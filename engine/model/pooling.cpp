// Names of poolings.
#include "kvant/pooling.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace kvant {
namespace {

// In the order of Pooling.
constexpr std::array<std::string_view, 5> kPoolingNames = {"none", "mean", "cls", "last", "rank"};

}  // namespace

std::optional<Pooling> ParsePooling(std::string_view text) {
  const auto* found = std::ranges::find(kPoolingNames, text);
  if (found == kPoolingNames.end()) return std::nullopt;
  return static_cast<Pooling>(found - kPoolingNames.begin());
}

std::string_view PoolingName(Pooling pooling) {
  return kPoolingNames[static_cast<size_t>(pooling)];
}

}  // namespace kvant
