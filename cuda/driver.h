// NVIDIA's driver, opened at run time: the same program runs where there is none, and says why. The
// few functions that are needed are declared here, so that nothing of CUDA need be installed to
// build. What a device does is in device.h.
//
// Thread-safety: a Driver is immutable, and its functions may be called on any thread. The library
// stays loaded until the process ends, because threads of its own may run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace kvant::cuda {

// The properties of a device that the driver reports.
struct DeviceFacts {
  std::string name;
  int major = 0;  // compute capability: 9.0 is sm_90
  int minor = 0;
  int multiprocessors = 0;
  uint64_t memory_bytes = 0;
  int shared_bytes_max = 0;  // shared memory of a thread block at most
};

// Names and signatures are those of cuda.h, whose binary interface the driver keeps for good; a
// function that has changed has a new name with "_v2". Objects of the driver are pointers to types
// that only it knows.
struct DriverFunctions {
  using Code = int;                    // CUresult: 0 = done
  using Address = unsigned long long;  // CUdeviceptr
  using Object = void*;

  Code (*init)(unsigned flags);
  Code (*driver_get_version)(int* version);
  Code (*get_error_name)(Code code, const char** name);
  Code (*device_get_count)(int* count);
  Code (*device_get)(int* device, int number);
  Code (*device_get_name)(char* name, int size, int device);
  Code (*device_get_attribute)(int* value, int attribute, int device);
  Code (*device_total_mem)(size_t* bytes, int device);

  Code (*context_retain)(Object* context, int device);
  Code (*context_release)(int device);
  Code (*context_set_current)(Object context);
  Code (*mem_get_info)(size_t* free_bytes, size_t* total_bytes);
  Code (*mem_alloc)(Address* address, size_t bytes);
  Code (*mem_free)(Address address);
  Code (*mem_host_alloc)(void** memory, size_t bytes, unsigned flags);
  Code (*mem_free_host)(void* memory);
  Code (*mem_host_register)(void* memory, size_t bytes, unsigned flags);
  Code (*mem_host_unregister)(void* memory);
  Code (*memcpy_to_device)(Address to, const void* from, size_t bytes, Object stream);
  Code (*memcpy_to_host)(void* to, Address from, size_t bytes, Object stream);
  Code (*memset_d8)(Address to, unsigned char value, size_t count, Object stream);

  Code (*module_load_data)(Object* module, const void* image);
  Code (*module_unload)(Object module);
  Code (*module_get_function)(Object* function, Object module, const char* name);
  Code (*func_set_attribute)(Object function, int attribute, int value);
  Code (*launch_kernel)(Object function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        Object stream, void** params, void** extra);

  Code (*stream_create)(Object* stream, unsigned flags);
  Code (*stream_destroy)(Object stream);
  Code (*stream_synchronize)(Object stream);
  Code (*stream_wait_event)(Object stream, Object event, unsigned flags);
  Code (*event_create)(Object* event, unsigned flags);
  Code (*event_destroy)(Object event);
  Code (*event_record)(Object event, Object stream);
  Code (*event_synchronize)(Object event);

  Code (*stream_begin_capture)(Object stream, int mode);
  Code (*stream_end_capture)(Object stream, Object* graph);
  Code (*graph_instantiate)(Object* executable, Object graph, unsigned long long flags);
  Code (*graph_launch)(Object executable, Object stream);
  Code (*graph_exec_destroy)(Object executable);
  Code (*graph_destroy)(Object graph);
};

class Driver {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";
  // Names another library.
  static constexpr const char* kLibraryVariable = "KVANT_CUDA_DRIVER";

  // kNotSupported where there is no driver or it is too old, kIo where it does not start, which is
  // also how it says that there is no device.
  static Result<Driver> Open(const std::string& library);
  // The library that the environment names, or kLibrary.
  static Result<Driver> Open();

  // The version of CUDA that the driver knows: 12040 is 12.4.
  int version() const { return version_; }
  // By the number that the driver gives them.
  Result<std::vector<DeviceFacts>> Devices() const;
  Result<DeviceFacts> Facts(int number) const;

  const DriverFunctions& call() const { return call_; }
  // An error that names the function, unless code is 0: kOutOfMemory where the device has no memory
  // left, kIo otherwise.
  Status Check(DriverFunctions::Code code, const char* function) const;
  // The library has kernels of its own, for the host, and needs no image of any.
  bool emulates() const { return emulates_; }

 private:
  Driver() = default;

  DriverFunctions call_{};
  int version_ = 0;
  bool emulates_ = false;
};

}  // namespace kvant::cuda
