#include "tools/serve/request/setting_names.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace kvant::tools {
namespace {

struct NativeName {
  std::string_view ours;
  std::string_view theirs;
};

constexpr NativeName kNativeNames[] = {{"typical", "typical_p"},
                                       {"dynatemp-exp", "dynatemp_exponent"},
                                       {"mirostat-ent", "mirostat_tau"},
                                       {"mirostat-lr", "mirostat_eta"}};

std::string WithUnderscores(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, '-', '_');
  return out;
}

}  // namespace

std::string AnswerName(const SamplerSetting& setting) {
  for (const NativeName& one : kNativeNames) {
    if (setting.name == one.ours) return std::string(one.theirs);
  }
  return WithUnderscores(setting.name);
}

std::string RequestNames(const SamplerSetting& setting) {
  std::string names(setting.name);
  std::string_view flags = setting.flags;
  while (!flags.empty()) {
    std::string_view flag = flags.substr(0, flags.find(','));
    flags.remove_prefix(std::min(flags.size(), flag.size() + 1));
    flag.remove_prefix(std::min(flag.size(), flag.find_first_not_of('-')));
    if (flag.size() > 1) names += "," + std::string(flag);
  }
  return WithUnderscores(names) + "," + AnswerName(setting);
}

Refusal ReadSamplerNames(const std::string& name, const RequestJson& value,
                         std::optional<std::vector<std::string>>* out) {
  Result<std::vector<std::string>> names = std::vector<std::string>();
  if (value.is_string()) {
    names = ParseSamplerLetters(value.get<std::string>());
  } else if (value.is_array()) {
    std::string joined;
    for (const RequestJson& one : value) {
      if (!one.is_string()) return WrongType(name, "names of samplers", one);
      joined += (joined.empty() ? "" : ";") + one.get<std::string>();
    }
    if (!joined.empty()) names = ParseSamplers(joined);
  } else {
    return WrongType(name, "a list of names", value);
  }
  if (!names.ok()) return WrongValue(name, names.error().message);
  *out = std::move(*names);
  return {};
}

}  // namespace kvant::tools
