// Finds the driver's functions by their names and turns its codes into errors. Names, types and
// numbers are those of cuda.h, whose binary interface the driver keeps for good; a function that
// has changed has a new name with "_v2".
#include "cuda/driver.h"

#include <dlfcn.h>

#include <array>

namespace kvant::cuda {
namespace {

// Of CUdevice_attribute.
constexpr int kMultiprocessorCount = 16;
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

// More than any machine has; a driver that says more is not believed.
constexpr int kDevicesMax = 1024;

// The first line of what the loader says.
std::string LoaderError() {
  const char* text = dlerror();
  const std::string all = text == nullptr ? "no reason given" : text;
  return all.substr(0, all.find('\n'));
}

template <class Function>
Status Find(void* library, const std::string& path, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function != nullptr) return {};
  return MakeError(ErrorCode::kNotSupported, "CUDA driver {}: expected the function {}, found none",
                   path, name);
}

}  // namespace

Status Driver::Check(Code code, const char* function) const {
  if (code == 0) return {};
  const char* name = nullptr;
  if (call_.get_error_name(code, &name) != 0 || name == nullptr) name = "an unknown error";
  return MakeError(ErrorCode::kIo, "CUDA driver: {} failed: {} ({})", function, name, code);
}

Result<Driver> Driver::Open(const std::string& library) {
  void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    return MakeError(ErrorCode::kNotSupported, "CUDA driver: {}", LoaderError());
  }
  Driver driver;
  Functions& call = driver.call_;
  KVANT_TRY(Find(opened, library, "cuInit", &call.init));
  KVANT_TRY(Find(opened, library, "cuDriverGetVersion", &call.driver_get_version));
  KVANT_TRY(Find(opened, library, "cuGetErrorName", &call.get_error_name));
  KVANT_TRY(Find(opened, library, "cuDeviceGetCount", &call.device_get_count));
  KVANT_TRY(Find(opened, library, "cuDeviceGet", &call.device_get));
  KVANT_TRY(Find(opened, library, "cuDeviceGetName", &call.device_get_name));
  KVANT_TRY(Find(opened, library, "cuDeviceGetAttribute", &call.device_get_attribute));
  KVANT_TRY(Find(opened, library, "cuDeviceTotalMem_v2", &call.device_total_mem));
  KVANT_TRY(driver.Check(call.init(0), "cuInit"));
  KVANT_TRY(driver.Check(call.driver_get_version(&driver.version_), "cuDriverGetVersion"));
  return driver;
}

Result<std::vector<DeviceFacts>> Driver::Devices() const {
  int count = 0;
  KVANT_TRY(Check(call_.device_get_count(&count), "cuDeviceGetCount"));
  if (count < 0 || count > kDevicesMax) {
    return MakeError(ErrorCode::kIo, "CUDA driver: expected at most {} devices, found {}",
                     kDevicesMax, count);
  }
  std::vector<DeviceFacts> devices;
  for (int number = 0; number < count; ++number) {
    KVANT_ASSIGN(DeviceFacts facts, Facts(number));
    devices.push_back(std::move(facts));
  }
  return devices;
}

Result<DeviceFacts> Driver::Facts(int number) const {
  DeviceFacts facts;
  int device = 0;
  KVANT_TRY(Check(call_.device_get(&device, number), "cuDeviceGet"));
  std::array<char, 256> name{};  // one more than the driver may fill
  KVANT_TRY(Check(call_.device_get_name(name.data(), static_cast<int>(name.size()) - 1, device),
                  "cuDeviceGetName"));
  facts.name = name.data();
  const auto attribute = [&](int which, int* value) {
    return Check(call_.device_get_attribute(value, which, device), "cuDeviceGetAttribute");
  };
  KVANT_TRY(attribute(kCapabilityMajor, &facts.major));
  KVANT_TRY(attribute(kCapabilityMinor, &facts.minor));
  KVANT_TRY(attribute(kMultiprocessorCount, &facts.multiprocessors));
  size_t bytes = 0;
  KVANT_TRY(Check(call_.device_total_mem(&bytes, device), "cuDeviceTotalMem_v2"));
  facts.memory_bytes = bytes;
  return facts;
}

}  // namespace kvant::cuda
