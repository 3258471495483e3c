// Finds the driver's functions by their names and turns its codes into errors.
#include "cuda/driver.h"

#include <dlfcn.h>

#include <array>
#include <cstdlib>

namespace kvant::cuda {
namespace {

// Constants of CUdevice_attribute.
constexpr int kMultiprocessorCount = 16;
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;
constexpr int kSharedBytesMax = 97;  // CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN

// A constant of CUresult.
constexpr int kErrorOutOfMemory = 2;

// More than any machine has; a driver that says more is not believed.
constexpr int kDevicesMax = 1024;

// The first line of what the loader says.
std::string LoaderError() {
  const char* text = dlerror();
  const std::string all = text == nullptr ? "no reason given" : text;
  return all.substr(0, all.find('\n'));
}

// Finds functions of a library; keeps the first error.
class Finder {
 public:
  Finder(void* library, const std::string& path) : library_(library), path_(path) {}

  template <class Function>
  void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
    if (*function != nullptr || !status_.ok()) return;
    status_ = MakeError(ErrorCode::kNotSupported,
                        "CUDA driver {}: expected the function {}, found none", path_, name);
  }
  Status status() const { return status_; }

 private:
  void* library_;
  const std::string& path_;
  Status status_;
};

void FindDevices(Finder& finder, DriverFunctions& call) {
  finder.Find("cuInit", &call.init);
  finder.Find("cuDriverGetVersion", &call.driver_get_version);
  finder.Find("cuGetErrorName", &call.get_error_name);
  finder.Find("cuDeviceGetCount", &call.device_get_count);
  finder.Find("cuDeviceGet", &call.device_get);
  finder.Find("cuDeviceGetName", &call.device_get_name);
  finder.Find("cuDeviceGetAttribute", &call.device_get_attribute);
  finder.Find("cuDeviceTotalMem_v2", &call.device_total_mem);
}

void FindMemory(Finder& finder, DriverFunctions& call) {
  finder.Find("cuDevicePrimaryCtxRetain", &call.context_retain);
  finder.Find("cuDevicePrimaryCtxRelease_v2", &call.context_release);
  finder.Find("cuCtxSetCurrent", &call.context_set_current);
  finder.Find("cuMemGetInfo_v2", &call.mem_get_info);
  finder.Find("cuMemAlloc_v2", &call.mem_alloc);
  finder.Find("cuMemFree_v2", &call.mem_free);
  finder.Find("cuMemHostAlloc", &call.mem_host_alloc);
  finder.Find("cuMemFreeHost", &call.mem_free_host);
  finder.Find("cuMemHostRegister_v2", &call.mem_host_register);
  finder.Find("cuMemHostUnregister", &call.mem_host_unregister);
  finder.Find("cuMemcpyHtoDAsync_v2", &call.memcpy_to_device);
  finder.Find("cuMemcpyDtoHAsync_v2", &call.memcpy_to_host);
  finder.Find("cuMemsetD8Async", &call.memset_d8);
}

void FindWork(Finder& finder, DriverFunctions& call) {
  finder.Find("cuModuleLoadData", &call.module_load_data);
  finder.Find("cuModuleUnload", &call.module_unload);
  finder.Find("cuModuleGetFunction", &call.module_get_function);
  finder.Find("cuFuncSetAttribute", &call.func_set_attribute);
  finder.Find("cuLaunchKernel", &call.launch_kernel);
  finder.Find("cuStreamCreate", &call.stream_create);
  finder.Find("cuStreamDestroy_v2", &call.stream_destroy);
  finder.Find("cuStreamSynchronize", &call.stream_synchronize);
  finder.Find("cuStreamWaitEvent", &call.stream_wait_event);
  finder.Find("cuEventCreate", &call.event_create);
  finder.Find("cuEventDestroy_v2", &call.event_destroy);
  finder.Find("cuEventRecord", &call.event_record);
  finder.Find("cuEventSynchronize", &call.event_synchronize);
  finder.Find("cuStreamBeginCapture_v2", &call.stream_begin_capture);
  finder.Find("cuStreamEndCapture", &call.stream_end_capture);
  finder.Find("cuGraphInstantiateWithFlags", &call.graph_instantiate);
  finder.Find("cuGraphLaunch", &call.graph_launch);
  finder.Find("cuGraphExecDestroy", &call.graph_exec_destroy);
  finder.Find("cuGraphDestroy", &call.graph_destroy);
}

}  // namespace

Status Driver::Check(DriverFunctions::Code code, const char* function) const {
  if (code == 0) return {};
  const char* name = nullptr;
  if (call_.get_error_name(code, &name) != 0 || name == nullptr) name = "an unknown error";
  return MakeError(code == kErrorOutOfMemory ? ErrorCode::kOutOfMemory : ErrorCode::kIo,
                   "CUDA driver: {} failed: {} ({})", function, name, code);
}

Result<Driver> Driver::Open() {
  const char* named = std::getenv(kLibraryVariable);
  return Open(named != nullptr && *named != '\0' ? named : kLibrary);
}

Result<Driver> Driver::Open(const std::string& library) {
  void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    return MakeError(ErrorCode::kNotSupported, "CUDA driver: {}", LoaderError());
  }
  Driver driver;
  Finder finder(opened, library);
  FindDevices(finder, driver.call_);
  FindMemory(finder, driver.call_);
  FindWork(finder, driver.call_);
  KVANT_TRY(finder.status());
  driver.emulates_ = dlsym(opened, "kvant_emulated_device") != nullptr;
  KVANT_TRY(driver.Check(driver.call_.init(0), "cuInit"));
  KVANT_TRY(driver.Check(driver.call_.driver_get_version(&driver.version_), "cuDriverGetVersion"));
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
  KVANT_TRY(attribute(kSharedBytesMax, &facts.shared_bytes_max));
  size_t bytes = 0;
  KVANT_TRY(Check(call_.device_total_mem(&bytes, device), "cuDeviceTotalMem_v2"));
  facts.memory_bytes = bytes;
  return facts;
}

}  // namespace kvant::cuda
