// The options of a text: from -p, -f or standard input.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "tools/options/command_line.h"
#include "tools/options/groups/model_group.h"

namespace kvant::tools {

struct TextGroup {
  std::optional<std::string> text;
  std::optional<std::string> file;
  bool escape = false;

  // `what` names the text in the help: "prompt".
  void Add(OptionList& list, const std::string& group, const std::string& what);

  // At most one source may be given; none gives nullopt. Files and standard input are taken as they
  // are; kCancelled if a signal ends the reading.
  Result<std::optional<std::string>> Read(const Positionals& positionals) const;
};

}  // namespace kvant::tools
