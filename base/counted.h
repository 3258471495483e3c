// A count with its noun, as messages have it: "1 token", "2 tokens", "0 matrices".
//
// Thread-safety: pure.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace kvant {

// `plural` is for nouns to which an s is not added: "matrices".
template <std::integral Count>
std::string Counted(Count count, std::string_view noun, std::string_view plural = "") {
  if (count == 1) return fmt::format("1 {}", noun);
  return plural.empty() ? fmt::format("{} {}s", count, noun) : fmt::format("{} {}", count, plural);
}

}  // namespace kvant
