// Formats: Linux's Documentation/filesystems/proc.rst and admin-guide/cgroup-v2.rst, and
// admin-guide/cgroup-v1/memory.rst for systems that still have the first version.
#include "base/available_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>

namespace kvant {
namespace {

// The names of a version's files, of a group and of its children together.
struct GroupFiles {
  std::string_view folder;  // of the memory groups, below the root
  std::string_view limit;
  std::string_view anonymous;  // in memory.stat
  std::string_view shared;
};
constexpr GroupFiles kSecondVersion = {"", "/memory.max", "anon", "shmem"};
constexpr GroupFiles kFirstVersion = {"/memory", "/memory.limit_in_bytes", "total_rss",
                                      "total_shmem"};

// The number that a text is; nothing for "max" and for other words.
std::optional<uint64_t> NumberOf(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The number that follows a name in a file of names and numbers.
std::optional<uint64_t> NumberAfter(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    std::string_view rest = std::string_view(line).substr(name.size());
    if (!rest.starts_with(' ')) continue;
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    return NumberOf(rest.substr(0, rest.find(' ')));
  }
  return std::nullopt;
}

// The bytes that a group may still take under its limit.
uint64_t LeftInGroup(const std::string& folder, const GroupFiles& files) {
  std::string word;
  std::ifstream(folder + std::string(files.limit)) >> word;
  const std::optional<uint64_t> limit = NumberOf(word);
  if (!limit) return UINT64_MAX;
  const std::string stat = folder + "/memory.stat";
  const uint64_t used =
      NumberAfter(stat, files.anonymous).value_or(0) + NumberAfter(stat, files.shared).value_or(0);
  return *limit - std::min(*limit, used);
}

// The bytes that a group and all groups around it may still take. In a container the groups that
// the file names may be out of sight; the container's own group is then the root.
uint64_t LeftInGroups(const std::string& root, std::string group, const GroupFiles& files) {
  const std::string folder = root + std::string(files.folder);
  uint64_t left = LeftInGroup(folder, files);
  while (group.size() > 1) {
    left = std::min(left, LeftInGroup(folder + group, files));
    group.resize(group.rfind('/'));
  }
  return left;
}

}  // namespace

uint64_t AvailableMemory(const MemoryFiles& files) {
  uint64_t available = UINT64_MAX;
  if (const auto kilobytes = NumberAfter(files.meminfo, "MemAvailable:")) {
    available = *kilobytes * 1024;
  }
  // Lines such as "0::/user.slice" and, in the first version, "4:memory:/user.slice".
  std::ifstream groups(files.groups);
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string_view controllers =
        std::string_view(line).substr(first + 1, second - first - 1);
    const bool is_first_version = controllers == "memory";
    if (!controllers.empty() && !is_first_version) continue;
    available =
        std::min(available, LeftInGroups(files.group_root, line.substr(second + 1),
                                         is_first_version ? kFirstVersion : kSecondVersion));
  }
  return available;
}

}  // namespace kvant
