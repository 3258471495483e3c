// That a test without its data skips, and fails where the data is required.
#include "tests/shared_data.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

namespace kvant::test {
namespace {

void Need(const char* path) {
  KVANT_SKIP_WITHOUT(path);
  ADD_FAILURE() << path << " was read";
}

class SharedData : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* before = std::getenv(kVariable)) before_ = before;
  }
  void TearDown() override {
    if (before_.empty()) {
      unsetenv(kVariable);
    } else {
      setenv(kVariable, before_.c_str(), 1);
    }
  }
  static constexpr const char* kVariable = "KVANT_SHARED_REQUIRED";
  std::string before_;
};

TEST_F(SharedData, RequiredDataThatIsAbsentIsAFailure) {
  setenv(kVariable, "1", 1);
  EXPECT_FATAL_FAILURE(Need("/no/such/file"), "/no/such/file is absent");
}

TEST_F(SharedData, OtherwiseTheTestSkips) {
  for (const char* value : {"", "0"}) {
    setenv(kVariable, value, 1);
    testing::TestPartResultArray results;
    {
      testing::ScopedFakeTestPartResultReporter reporter(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
      Need("/no/such/file");
    }
    ASSERT_EQ(results.size(), 1);
    EXPECT_TRUE(results.GetTestPartResult(0).skipped());
  }
}

TEST_F(SharedData, WhatIsThereIsRead) {
  setenv(kVariable, "1", 1);
  EXPECT_NONFATAL_FAILURE(Need("/"), "was read");
}

}  // namespace
}  // namespace kvant::test
