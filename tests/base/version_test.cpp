// The generated version data: against the project's own CMakeLists.txt.
#include "base/version.h"

#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "tests/shared_data.h"

namespace kvant {
namespace {

TEST(Version, IsTheOneOfTheBuildFile) {
  std::ifstream file(test::SourcePath("CMakeLists.txt"));
  std::stringstream text;
  text << file.rdbuf();
  const std::string project = "project(kvant VERSION " + std::string(Version().version) + " ";
  EXPECT_NE(text.str().find(project), std::string::npos) << project;
}

TEST(Version, NamesCommitCompilerAndLibraries) {
  EXPECT_TRUE(std::regex_match(std::string(Version().commit), std::regex("unknown|[0-9a-f]{12,}")))
      << Version().commit;
  EXPECT_TRUE(std::regex_match(std::string(Version().compiler), std::regex("\\w+ \\d+\\.\\d+.*")))
      << Version().compiler;
  EXPECT_FALSE(Version().build_type.empty());
  for (const char* name : {"fmt", "PCRE2", "utf8proc", "oneDNN", "OpenBLAS", "xxHash", "zlib"}) {
    std::string version;
    for (const auto& [library, number] : Version().libraries) {
      if (library == name) version = number;
    }
    EXPECT_TRUE(std::regex_match(version, std::regex("absent|\\d+\\.\\d+.*")))
        << name << ": '" << version << "'";
  }
}

}  // namespace
}  // namespace kvant
