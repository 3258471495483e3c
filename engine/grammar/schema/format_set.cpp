#include "engine/grammar/schema/format_set.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "engine/grammar/schema/pattern_set.h"

namespace kvant::grammar {
namespace {

// Expressions by name; {name} stands for another one. Names that begin with an underscore are parts
// only.
constexpr std::pair<const char*, const char*> kFormats[] = {
    // Days up to 28 of every month, 29 and 30 of all but February, 31 of seven months, and
    // 29 February of leap years. There is no year 0.
    {"_year", "(?:\\d\\d\\d[1-9]|\\d\\d[1-9]\\d|\\d[1-9]\\d\\d|[1-9]\\d\\d\\d)"},
    {"_leap", "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"},
    {"date",
     "(?:{_year}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|"
     "(?:0[13578]|1[02])-31)|{_leap}-02-29)"},
    {"time",
     "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:Z|[-+](?:[01]\\d|2[0-3]):[0-5]\\d)"},
    {"date-time", "{date}T{time}"},
    {"_times", "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)"},
    {"duration",
     "P(?:\\d+W|(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)(?:{_times})?|{_times})"},
    // Labels have no two hyphens in a row, so that none is an internationalized one; a name of
    // three labels of 63 characters, or twelve of 20, has at most 253.
    {"_label", "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,31}"},
    {"_short", "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,9}"},
    {"hostname", "(?:{_label}(?:\\.{_label}){0,2}|{_short}(?:\\.{_short}){0,11})"},
    {"_atom", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"},
    {"email", "{_atom}(?:\\.{_atom})*@{hostname}"},
    {"_byte", "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"},
    {"ipv4", "{_byte}(?:\\.{_byte}){3}"},
    {"_h", "[0-9A-Fa-f]{1,4}"},
    {"_ls", "(?:{_h}:{_h}|{ipv4})"},
    {"ipv6",
     "(?:(?:{_h}:){6}{_ls}|::(?:{_h}:){5}{_ls}|(?:{_h})?::(?:{_h}:){4}{_ls}|"
     "(?:(?:{_h}:){0,1}{_h})?::(?:{_h}:){3}{_ls}|(?:(?:{_h}:){0,2}{_h})?::(?:{_h}:){2}{_ls}|"
     "(?:(?:{_h}:){0,3}{_h})?::{_h}:{_ls}|(?:(?:{_h}:){0,4}{_h})?::{_ls}|"
     "(?:(?:{_h}:){0,5}{_h})?::{_h}|(?:(?:{_h}:){0,6}{_h})?::)"},
    {"_pct", "%[0-9A-Fa-f]{2}"},
    {"_pchar", "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|{_pct})"},
    {"_authority",
     "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|{_pct})*@)?"
     "(?:\\[{ipv6}\\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|{_pct})*)(?::\\d*)?"},
    {"_tail", "(?:\\?(?:{_pchar}|[/?])*)?(?:#(?:{_pchar}|[/?])*)?"},
    {"_rooted", "/(?:{_pchar}+(?:/{_pchar}*)*)?"},
    {"uri",
     "[A-Za-z][A-Za-z0-9+.-]*:(?://{_authority}(?:/{_pchar}*)*|{_rooted}|"
     "{_pchar}+(?:/{_pchar}*)*)?{_tail}"},
    {"_nocolon", "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|{_pct})"},
    {"_relative", "(?://{_authority}(?:/{_pchar}*)*|{_rooted}|{_nocolon}+(?:/{_pchar}*)*)?{_tail}"},
    {"uri-reference", "(?:{uri}|{_relative})"},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
    {"json-pointer", "(?:/(?:[^~/]|~[01])*)*"},
    {"relative-json-pointer", "(?:0|[1-9]\\d*)(?:#|(?:/(?:[^~/]|~[01])*)*)"},
};

const char* Find(std::string_view name) {
  for (const auto& [known, pattern] : kFormats) {
    if (name == known) return pattern;
  }
  return nullptr;
}

// The expression with the ones that it names. A brace that no name follows stands for itself.
std::string Expanded(std::string_view pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const size_t end = pattern[i] == '{' ? pattern.find('}', i) : std::string_view::npos;
    const char* named =
        end == std::string_view::npos ? nullptr : Find(pattern.substr(i + 1, end - i - 1));
    if (named == nullptr) {
      out += pattern[i];
      continue;
    }
    out += "(?:" + Expanded(named) + ")";
    i = end;
  }
  return out;
}

}  // namespace

std::shared_ptr<const TextSet> FormatSet(std::string_view name) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const TextSet>, std::less<>> made;
  const std::lock_guard lock(mutex);
  const auto kept = made.find(name);
  if (kept != made.end()) return kept->second;
  const char* pattern = name.starts_with('_') ? nullptr : Find(name);
  if (pattern == nullptr) return nullptr;
  auto set = PatternSet("^(?:" + Expanded(pattern) + ")$");
  KVANT_CHECK(set.ok());
  return made.emplace(name, std::make_shared<const TextSet>(std::move(*set))).first->second;
}

std::string FormatNames() {
  std::string names;
  for (const auto& [name, pattern] : kFormats) {
    if (name[0] == '_') continue;
    names += names.empty() ? name : fmt::format(", {}", name);
  }
  return names;
}

}  // namespace kvant::grammar
