// NVIDIA's driver, opened at run time: the same program runs where there is none, and says why. The
// few functions that are needed are declared in driver.cpp, so that nothing of CUDA need be
// installed to build.
//
// Thread-safety: a Driver is immutable, and its functions may be called on any thread. The library
// stays loaded until the process ends, because threads of its own may run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvant::cuda {

// What the driver tells of a device.
struct DeviceFacts {
  std::string name;
  int major = 0;  // compute capability: 9.0 is sm_90
  int minor = 0;
  int multiprocessors = 0;
  uint64_t memory_bytes = 0;
};

class Driver {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  // kNotSupported where there is no driver or it is too old, kIo where it does not start, which is
  // also how it says that there is no device.
  static Result<Driver> Open(const std::string& library = kLibrary);

  // The version of CUDA that the driver knows: 12040 is 12.4.
  int version() const { return version_; }
  // By the number that the driver gives them.
  Result<std::vector<DeviceFacts>> Devices() const;

 private:
  using Code = int;  // CUresult: 0 = done
  struct Functions {
    Code (*init)(unsigned flags);
    Code (*driver_get_version)(int* version);
    Code (*get_error_name)(Code code, const char** name);
    Code (*device_get_count)(int* count);
    Code (*device_get)(int* device, int number);
    Code (*device_get_name)(char* name, int size, int device);
    Code (*device_get_attribute)(int* value, int attribute, int device);
    Code (*device_total_mem)(size_t* bytes, int device);
  };

  Driver() = default;
  Status Check(Code code, const char* function) const;
  Result<DeviceFacts> Facts(int number) const;

  Functions call_{};
  int version_ = 0;
};

}  // namespace kvant::cuda
