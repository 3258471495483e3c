// All pieces of a vocabulary that a text begins with: the pieces in order of their bytes, narrowed
// byte by byte to those that agree with the text.
// Thread-safety: const after construction.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kvant/token_id.h"

namespace kvant {

class PiecePrefixes {
 public:
  PiecePrefixes() = default;

  // Takes the pieces with the numbers `ids` of the vocabulary `pieces`, which must outlive this:
  // none of them empty, no two equal.
  PiecePrefixes(std::span<const std::string_view> pieces, std::vector<TokenId> ids)
      : pieces_(pieces), sorted_(std::move(ids)) {
    std::sort(sorted_.begin(), sorted_.end(),
              [this](TokenId a, TokenId b) { return Text(a) < Text(b); });
    for (const TokenId id : sorted_) ++begins_[static_cast<uint8_t>(Text(id)[0]) + size_t{1}];
    for (size_t byte = 1; byte < begins_.size(); ++byte) begins_[byte] += begins_[byte - 1];
  }

  // Calls visit(id, bytes of the piece), the shortest first.
  template <class Visit>
  void ForEach(std::string_view text, Visit visit) const {
    if (text.empty()) return;
    const auto first = static_cast<uint8_t>(text[0]);
    auto low = sorted_.begin() + begins_[first];
    auto high = sorted_.begin() + begins_[first + size_t{1}];
    for (size_t size = 1; low != high; ++size) {
      // All pieces that are left agree with the text in `size` bytes.
      if (Text(*low).size() == size) visit(*low++, size);
      if (low == high || size == text.size()) return;
      const auto byte = static_cast<uint8_t>(text[size]);
      const auto at = [&](TokenId id) { return static_cast<uint8_t>(Text(id)[size]); };
      low = std::partition_point(low, high, [&](TokenId id) { return at(id) < byte; });
      high = std::partition_point(low, high, [&](TokenId id) { return at(id) == byte; });
    }
  }

  // Bytes of the longest one, 0 if there is none.
  size_t Longest(std::string_view text) const {
    size_t longest = 0;
    ForEach(text, [&](TokenId, size_t size) { longest = size; });
    return longest;
  }

 private:
  std::string_view Text(TokenId id) const { return pieces_[static_cast<size_t>(id)]; }

  std::span<const std::string_view> pieces_;
  std::vector<TokenId> sorted_;
  std::array<int32_t, 257> begins_{};  // in sorted_, by the first byte; the last is the end
};

}  // namespace kvant
