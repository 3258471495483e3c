#include "tools/options/groups/settings_group.h"

#include <algorithm>
#include <utility>

#include "base/result.h"
#include "engine/limits.h"
#include "tools/options/help_text.h"
#include "tools/options/number_list.h"
#include "tools/options/option_values.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

std::string FirstLong(const std::string& flags) {
  return flags.substr(flags.find("--"), flags.find(',', flags.find("--")) - flags.find("--"));
}

// The names that a shell offers; a list is typed as its members.
std::vector<std::string> ChoicesOf(const SessionSetting& setting) {
  std::vector<std::string> out;
  for (const std::string_view choice : setting.field.choices) {
    if (choice != "list") out.emplace_back(choice);
  }
  return out;
}

}  // namespace

void SettingsGroup::Add(OptionList& list, SessionTopic topic, const std::string& fallback,
                        const std::string& help) {
  const std::string group = list.group();
  for (const SessionSetting& setting : AllSessionSettings()) {
    if (setting.topic != topic) continue;
    list.Group(setting.is_for_debugging ? kDebuggingGroup : group);
    AddSetting(list, setting, fallback, help);
  }
  list.Group(group);
  if (topic == SessionTopic::kOffload) {
    list.Texts("--offload-layers", &offload_layers, "LIST",
               "Offload only these attention layers, by number from 0: 0-15, or 0,4,8-11");
  }
}

void SettingsGroup::AddSetting(OptionList& list, const SessionSetting& setting,
                               const std::string& fallback, const std::string& help) {
  using Kind = SessionSetting::Kind;
  const std::string flags(setting.flags);
  const std::string text = help.empty() ? std::string(setting.help) : help;
  const int64_t usual = setting.field.ours.get(SessionOptions());
  const auto set = [this, &setting](int64_t number) {
    setting.field.ours.set(options, number);
    given.insert(setting.name);
  };
  if (setting.field.kind == Kind::kFlag) {
    list.Flag(
        flags, [set, usual] { set(1 - usual); }, text);
  } else if (setting.field.kind == Kind::kNumber) {
    list.Integer(flags, set, {setting.typed_min, std::min(setting.max, kContextMax)}, text,
                 fallback.empty() ? std::to_string(usual) : fallback);
  } else {
    const auto take = [this, &setting, set](const std::string& typed) -> Status {
      if (setting.field.kind == Kind::kBytes) {
        uint64_t bytes = 0;
        KVANT_TRY(TakeSize(typed, "500M or 2GiB", &bytes));
        set(static_cast<int64_t>(bytes));
        return {};
      }
      KVANT_TRY(setting.Choose(Visible(typed), options));
      given.insert(setting.name);
      return {};
    };
    list.Checked(flags, take, std::string(setting.type), text, std::string(setting.fallback));
    list.Values(FirstLong(flags), ChoicesOf(setting));
  }
}

void SettingsGroup::AddList(OptionList& list, std::string_view name,
                            std::vector<std::string>* texts, const std::string& fallback) {
  for (const SessionSetting& setting : AllSessionSettings()) {
    if (setting.name != name) continue;
    list.Texts(std::string(setting.flags), texts, std::string(setting.type),
               std::string(setting.help), fallback);
  }
}

Result<SessionOptions> SettingsGroup::Options() const {
  SessionOptions out = options;
  if (out.offload == Offload::kNone) {
    for (const auto& [was_given, name] : {std::pair(given.contains("kv_device"), "--kv-device"),
                                          std::pair(!offload_layers.empty(), "--offload-layers")}) {
      if (!was_given) continue;
      return MakeError(ErrorCode::kInvalid, "{}: expected --offload attention with it", name);
    }
  }
  if (offload_layers.empty()) return out;
  KVANT_ASSIGN(const auto numbers,
               ParseNumbers("--offload-layers", offload_layers, {0, kLayersMax}));
  out.offload_layers.assign(numbers.begin(), numbers.end());
  return out;
}

}  // namespace kvant::tools
