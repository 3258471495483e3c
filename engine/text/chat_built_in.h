// The chat templates that come with kvant, for models whose file has none: short forms, for
// messages without tools.
//
// Thread-safety: constant.
#pragma once

#include <span>
#include <string_view>

namespace kvant {

struct BuiltInTemplate {
  std::string_view name;
  std::string_view source;
};

std::span<const BuiltInTemplate> BuiltInTemplates();

}  // namespace kvant
