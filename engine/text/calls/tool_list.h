// The tools that an answer may call: their names, and which types the values of their parameters
// may have.
//
// Thread-safety: const after Parse.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvant {

inline constexpr size_t kToolsMax = 4096;

// Types of JSON values, as bits.
using ToolTypes = uint32_t;
inline constexpr ToolTypes kTypeText = 1;
inline constexpr ToolTypes kTypeNumber = 2;
inline constexpr ToolTypes kTypeBoolean = 4;
inline constexpr ToolTypes kTypeNull = 8;
inline constexpr ToolTypes kTypeOther = 16;  // objects and arrays
inline constexpr ToolTypes kTypeAny = 31;

struct ToolEntry {
  std::string name;
  std::string description;
  nlohmann::ordered_json parameters;  // a JSON schema; null: none was given
  bool is_strict = false;
};

class ToolList {
 public:
  // The tools of a JSON array in the form of OpenAI's API; "" is an empty list. kInvalid with the
  // place for anything else.
  static Result<ToolList> Parse(std::string_view json);

  const std::vector<ToolEntry>& tools() const { return tools_; }
  bool empty() const { return tools_.empty(); }
  const ToolEntry* Find(std::string_view name) const;
  // Which types a value may have; all, where nothing is known of it.
  ToolTypes TypesOf(std::string_view tool, std::string_view parameter) const;

 private:
  std::vector<ToolEntry> tools_;
};

}  // namespace kvant
