#include "engine/generate/logit_check.h"

#include <algorithm>

#include "base/result.h"

namespace kvant {
namespace {

// Pieces of a fixed size, which the compiler turns into vectors.
bool HasNan(std::span<const float> row) {
  constexpr size_t kPiece = 64;
  size_t begin = 0;
  for (; begin + kPiece <= row.size(); begin += kPiece) {
    int found = 0;
    for (size_t i = 0; i < kPiece; ++i) found |= row[begin + i] != row[begin + i] ? 1 : 0;
    if (found != 0) return true;
  }
  return std::any_of(row.begin() + static_cast<ptrdiff_t>(begin), row.end(),
                     [](float value) { return value != value; });
}

}  // namespace

Status CheckLogitsAreNumbers(std::span<const float> logits, const LogitOrigin& origin) {
  if (!HasNan(logits)) return {};
  const auto first =
      std::find_if(logits.begin(), logits.end(), [](float value) { return value != value; });
  return MakeError(ErrorCode::kCorrupt,
                   "{}{}logits after token {} at position {}: expected numbers, found NaN for "
                   "token {}",
                   origin.host, origin.host.empty() ? "" : ": ", origin.token, origin.position,
                   first - logits.begin());
}

}  // namespace kvant
