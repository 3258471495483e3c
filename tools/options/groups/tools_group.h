// The options of tools that an answer may call, and how its calls are written.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "kvant/tool_calls.h"
#include "tools/options/command_line.h"

namespace kvant::tools {

struct ToolsGroup {
  std::optional<std::string> file;  // with a JSON array
  std::string choice = "auto";

  // `about` tells what happens to calls.
  void Add(OptionList& list, const std::string& about);
  // kInvalid for a choice without tools.
  Status Check() const;
  // The text of the file; "" without one. kInvalid, with the place, for what is no list of tools.
  Result<std::string> Read() const;
};

// A complete call as a line of JSON.
std::string CallLine(const ToolCall& call);

}  // namespace kvant::tools
