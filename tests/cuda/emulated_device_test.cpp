// Opens the emulated driver for tests, and tests the device that it makes: each call may fail, and
// nothing stays allocated.
#include "tests/cuda/emulated_device.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <vector>

#include "tests/this_build.h"

namespace kvant::test {

EmulatedDriver::EmulatedDriver() {
  if (const char* named = std::getenv(cuda::Driver::kLibraryVariable)) {
    before_ = named;
    named_ = true;
  }
  setenv(cuda::Driver::kLibraryVariable, kFakeCudaDriver, 1);
  library_ = dlopen(kFakeCudaDriver, RTLD_NOW | RTLD_LOCAL);
  FailAt(0);
}

EmulatedDriver::~EmulatedDriver() {
  FailAt(0);
  if (named_) {
    setenv(cuda::Driver::kLibraryVariable, before_.c_str(), 1);
  } else {
    unsetenv(cuda::Driver::kLibraryVariable);
  }
}

template <class Function>
Function EmulatedDriver::Find(const char* name) const {
  return reinterpret_cast<Function>(dlsym(library_, name));
}

void EmulatedDriver::FailAt(int failing) const {
  Find<void (*)(int, int)>("FakeDriverBegin")(failing, 2);
}
void EmulatedDriver::LoseAt(int failing) const {
  FailAt(failing);
  Find<void (*)()>("FakeDriverLoses")();
}
int EmulatedDriver::calls() const { return Find<int (*)()>("FakeDriverCalls")(); }
void EmulatedDriver::SetMemory(size_t bytes) const {
  Find<void (*)(size_t)>("FakeDriverSetMemory")(bytes);
}
size_t EmulatedDriver::used_bytes() const { return Find<size_t (*)()>("FakeDriverUsed")(); }

Result<std::shared_ptr<cuda::Device>> OpenEmulatedDevice() {
  const EmulatedDriver driver;
  return cuda::Device::Open();
}

}  // namespace kvant::test

namespace kvant::cuda {
namespace {

using testing::HasSubstr;

// Bytes go up, are filled and copied there, and come back; by a recorded graph, too.
Status UseDevice(std::vector<uint8_t>* out) {
  KVANT_ASSIGN(const std::shared_ptr<Device> device, Device::Open());
  KVANT_ASSIGN(const Memory memory, device->Allocate(MemoryKind::kDevice, 256));
  KVANT_ASSIGN(const Memory ranges, device->Allocate(MemoryKind::kHost, sizeof(CopyRange)));
  std::vector<uint8_t> bytes(128);
  std::iota(bytes.begin(), bytes.end(), uint8_t{1});
  KVANT_ASSIGN(const Pin pin, device->PinHost(std::as_writable_bytes(std::span(bytes))));
  *ranges.pointer<CopyRange>() = {memory.pointer<const std::byte>(0), memory.pointer(128), 128};
  const auto work = [&]() -> Status {
    KVANT_TRY(device->Upload(Stream::kWork, memory.address(), bytes.data(), 128));
    KVANT_TRY(device->Fill(Stream::kWork, memory.address() + 32, std::byte{7}, 32));
    return device->Copy({ranges.pointer<const CopyRange>()}, {1, 2, 1});
  };
  KVANT_TRY(device->BeginRecording());
  const Status recorded = work();
  KVANT_ASSIGN(const Graph graph, device->EndRecording());
  if (!recorded.ok()) return recorded;
  EXPECT_EQ(device->traffic().up, 0u);
  KVANT_TRY(device->Run(graph));
  KVANT_TRY(work());
  EXPECT_EQ(device->traffic().up, 128u);
  KVANT_TRY(device->Record(Stream::kWork, 0));
  KVANT_TRY(device->Follow(Stream::kResults, 0));
  out->assign(128, 0);
  KVANT_TRY(device->Download(Stream::kResults, out->data(), memory.address() + 128, 128));
  KVANT_TRY(device->Record(Stream::kResults, 1));
  KVANT_TRY(device->Wait(1));
  return device->Wait(Stream::kResults);
}

TEST(CudaDevice, MovesFillsAndCopies) {
  const test::EmulatedDriver driver;
  std::vector<uint8_t> bytes;
  const Status status = UseDevice(&bytes);
  ASSERT_TRUE(status.ok()) << status.error().message;
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(bytes[i], i >= 32 && i < 64 ? 7 : i + 1) << i;
  }
  EXPECT_EQ(driver.used_bytes(), 0u);
}

TEST(CudaDevice, EveryCallMayFailAndTheDeviceMayBeLostThere) {
  const test::EmulatedDriver driver;
  std::vector<uint8_t> bytes;
  ASSERT_TRUE(UseDevice(&bytes).ok());
  const int all = driver.calls() - 2;  // the last two are the destructor's, which can tell nobody
  ASSERT_GT(all, 40);
  for (int failing = 1; failing <= all; ++failing) {
    for (const bool lost : {false, true}) {
      lost ? driver.LoseAt(failing) : driver.FailAt(failing);
      const Status status = UseDevice(&bytes);
      ASSERT_FALSE(status.ok()) << failing;
      EXPECT_THAT(status.error().message, HasSubstr("CUDA_ERROR_UNKNOWN (999)"));
      EXPECT_EQ(driver.used_bytes(), 0u) << failing;
    }
  }
}

TEST(CudaDevice, SaysWhatItCannotDo) {
  const test::EmulatedDriver driver;
  driver.SetMemory(1000);
  const auto device = Device::Open();
  ASSERT_TRUE(device.ok());
  const auto memory = (*device)->Allocate(MemoryKind::kDevice, 1001);
  ASSERT_FALSE(memory.ok());
  EXPECT_EQ(memory.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(*(*device)->FreeBytes(), 1000u);
  LayerBlocks blocks{};
  blocks.k_dim = blocks.v_dim = 128;
  EXPECT_TRUE((*device)->CanAttend(blocks).ok());
  for (const int dim : {0, 4, 12, 264}) {
    blocks.v_dim = dim;
    const Status status = (*device)->CanAttend(blocks);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kNotSupported);
    EXPECT_THAT(status.error().message, HasSubstr(std::to_string(dim)));
  }
  // Latents may be larger than heads, but not any size.
  blocks.key_form = KeyForm::kValueFirst;
  blocks.k_dim = 64;
  blocks.v_dim = 512;
  EXPECT_TRUE((*device)->CanAttend(blocks).ok());
  blocks.v_dim = 520;
  EXPECT_THAT((*device)->CanAttend(blocks).error().message, HasSubstr("up to 512, found 520"));
  const Status grid = (*device)->Copy({nullptr}, {1, 70000, 1});
  ASSERT_FALSE(grid.ok());
  EXPECT_THAT(grid.error().message, HasSubstr("70000"));
}

}  // namespace
}  // namespace kvant::cuda
