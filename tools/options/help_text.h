// The text of `kvant COMMAND --help`: the options that are used most, or all of them by group.
#pragma once

#include <string>

#include "tools/options/command_line.h"

namespace kvant::tools {

inline constexpr const char* kRunGroup = "Speed and memory";  // of sessions, in all commands
// Groups that come last.
inline constexpr const char* kDebuggingGroup = "Debugging";
inline constexpr const char* kOtherGroup = "Other";

bool TakesValue(const CLI::Option& option);

std::string FullHelp(const CLI::App& app, const std::string& command, const HelpText& help);
// The options in `help.common` with the beginnings of their texts. Where there are none, all
// options but those of sessions that are rarely needed, if these make the help long.
std::string BriefHelp(const CLI::App& app, const std::string& command, const HelpText& help);

}  // namespace kvant::tools
