// Finds data for tests that is not part of the project (trained models, vocabularies, texts): the
// folder named by KVANT_SHARED, else ../shared beside the source tree. Tests that need it skip with
// a message when it is absent, and fail where KVANT_SHARED_REQUIRED is 1.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace kvant::test {

inline std::string SharedPath(const std::string& relative) {
  const char* folder = std::getenv("KVANT_SHARED");
  const std::filesystem::path root =
      folder != nullptr ? folder : std::filesystem::path(KVANT_SOURCE_DIR).parent_path() / "shared";
  return (root / relative).string();
}

// A file of the project itself, relative to the source tree.
inline std::string SourcePath(const std::string& relative) {
  return (std::filesystem::path(KVANT_SOURCE_DIR) / relative).string();
}

// Whether a test fails for want of its data.
inline bool SharedIsRequired() {
  const char* required = std::getenv("KVANT_SHARED_REQUIRED");
  return required != nullptr && std::string_view(required) == "1";
}

}  // namespace kvant::test

#define KVANT_SKIP_WITHOUT(path)                                           \
  do {                                                                     \
    if (std::filesystem::exists(path)) break;                              \
    if (::kvant::test::SharedIsRequired()) FAIL() << path << " is absent"; \
    GTEST_SKIP() << path << " is absent";                                  \
  } while (false)
