// The options of sessions that rows of engine/run/session_settings.h describe.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/run/session_settings.h"
#include "kvant/session_options.h"
#include "tools/options/command_line.h"

namespace kvant::tools {

struct SettingsGroup {
  SessionOptions options;                   // with what was typed
  std::set<std::string_view> given;         // names of the settings that were typed
  std::vector<std::string> offload_layers;  // numbers and ranges, as typed

  // Adds the settings of a topic. `fallback` and `help` stand in for those of the rows, where not
  // empty.
  void Add(OptionList& list, SessionTopic topic, const std::string& fallback = "",
           const std::string& help = "");

  // Adds a setting for a list of values, which the command reads itself.
  static void AddList(OptionList& list, std::string_view name, std::vector<std::string>* texts,
                      const std::string& fallback = "");

  // The options with --offload-layers. kInvalid if an option of offloading was given without
  // --offload.
  Result<SessionOptions> Options() const;

 private:
  void AddSetting(OptionList& list, const SessionSetting& setting, const std::string& fallback,
                  const std::string& help);
};

}  // namespace kvant::tools
