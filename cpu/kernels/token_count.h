// Whether a pass has few tokens or many, which decides the arithmetic of its products and of its
// attention.
#pragma once

#include <cstdint>

namespace kvant::cpu {

// Products with few tokens and products with many may round differently. The caller decides once
// for a whole pass which of them it has, so that all its products agree, however their rows are
// shared out to threads.
enum class TokenCount : uint8_t { kFew, kMany };

// A pass of at least this many rows has many tokens.
inline constexpr int64_t kManyTokens = 64;
constexpr TokenCount TokenCountOf(int64_t rows) {
  return rows < kManyTokens ? TokenCount::kFew : TokenCount::kMany;
}

}  // namespace kvant::cpu
