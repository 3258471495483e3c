// The driver's binding against a library that is none, a library without its functions, and one
// that fails at every call in turn.
#include "cuda/driver.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/this_build.h"

namespace kvant::cuda {
namespace {

using testing::HasSubstr;
using testing::Not;

// Devices as a program finds them.
Result<std::vector<DeviceFacts>> FindDevices() {
  KVANT_ASSIGN(const Driver driver, Driver::Open(test::kFakeCudaDriver));
  EXPECT_EQ(driver.version(), 12040);
  return driver.Devices();
}

class CudaDriver : public testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(test::kFakeCudaDriver, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << test::kFakeCudaDriver;
    begin = reinterpret_cast<void (*)(int, int)>(dlsym(library_, "FakeDriverBegin"));
    calls = reinterpret_cast<int (*)()>(dlsym(library_, "FakeDriverCalls"));
  }
  void TearDown() override {
    begin(0, 2);
    dlclose(library_);
  }
  void (*begin)(int failing_call, int devices) = nullptr;
  int (*calls)() = nullptr;

 private:
  void* library_ = nullptr;
};

TEST_F(CudaDriver, TellsTheDevices) {
  begin(0, 2);
  const auto devices = FindDevices();
  ASSERT_TRUE(devices.ok()) << devices.error().message;
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[0].name, "Large Card");
  EXPECT_EQ((*devices)[0].major, 9);
  EXPECT_EQ((*devices)[0].multiprocessors, 132);
  EXPECT_EQ((*devices)[0].memory_bytes, uint64_t{80} << 30);
  EXPECT_EQ((*devices)[1].name, "Small Card");
  EXPECT_EQ((*devices)[1].major, 7);
  EXPECT_EQ((*devices)[1].minor, 5);
}

TEST_F(CudaDriver, EveryCallMayFail) {
  begin(0, 2);
  ASSERT_TRUE(FindDevices().ok());
  const int all = calls();
  ASSERT_EQ(all, 3 + 2 * 7);
  for (int failing = 1; failing <= all; ++failing) {
    begin(failing, 2);
    const auto devices = FindDevices();
    ASSERT_FALSE(devices.ok()) << failing;
    EXPECT_EQ(calls(), failing);  // nothing is asked after an error
    EXPECT_EQ(devices.error().code, ErrorCode::kIo);
    EXPECT_THAT(devices.error().message, HasSubstr("CUDA_ERROR_UNKNOWN (999)"));
    EXPECT_THAT(devices.error().message, HasSubstr("cu"));
    EXPECT_THAT(devices.error().message, Not(HasSubstr("\n")));
  }
}

TEST_F(CudaDriver, NumbersOfDevicesAreChecked) {
  begin(0, 0);
  ASSERT_TRUE(FindDevices().ok());
  EXPECT_TRUE(FindDevices()->empty());
  for (const int count : {-1, 2'000'000'000}) {
    begin(0, count);
    ASSERT_FALSE(FindDevices().ok());
    EXPECT_THAT(FindDevices().error().message, HasSubstr(std::to_string(count)));
  }
}

TEST_F(CudaDriver, ALibraryThatIsNotThereOrNoDriverIsRefused) {
  const auto absent = Driver::Open("libkvant-no-such-driver.so.1");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::kNotSupported);
  EXPECT_THAT(absent.error().message, HasSubstr("libkvant-no-such-driver.so.1"));
  const auto other = Driver::Open("libm.so.6");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kNotSupported);
  EXPECT_THAT(other.error().message, HasSubstr("cuInit"));
}

}  // namespace
}  // namespace kvant::cuda
