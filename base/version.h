// The version of this build: version, commit, compiler and the libraries it was built with.
//
// Generated from base/version.cpp.in by CMake. The commit is the one that was checked out when the
// library was built ("unknown" outside a git checkout); uncommitted changes do not show in it.
// Thread-safety: constant.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvant {

struct VersionInfo {
  std::string_view version;     // "0.1.0"
  std::string_view commit;      // 12 hex digits, or "unknown"
  std::string_view compiler;    // "GNU 12.2.0"
  std::string_view build_type;  // "Release", with sanitizers: "RelWithDebInfo address,undefined"
  std::vector<std::pair<std::string, std::string>> libraries;  // {"fmt", "9.1.0"}, or "absent"
};

const VersionInfo& Version();

}  // namespace kvant
