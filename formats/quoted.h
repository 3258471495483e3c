// Names from a file as they appear in messages: quoted, control characters and broken UTF-8 escaped
// and long ones cut, so that a message stays one harmless line whatever the file holds.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace kvant::formats {

// The longest piece of a name that a message repeats.
inline constexpr size_t kQuotedBytesMax = 100;

inline std::string Quoted(std::string_view name) {
  if (name.size() <= kQuotedBytesMax) return fmt::format("{:?}", name);
  return fmt::format("{:?}...", name.substr(0, kQuotedBytesMax));
}

}  // namespace kvant::formats
