// The device that tests/cuda/fake_driver.cpp emulates, and what tests may do to it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/result.h"
#include "cuda/device.h"

namespace kvant::test {

// While it lives, the driver of this process is the emulated one, which has counted no call and
// fails at none.
class EmulatedDriver {
 public:
  EmulatedDriver();
  ~EmulatedDriver();
  EmulatedDriver(const EmulatedDriver&) = delete;
  EmulatedDriver& operator=(const EmulatedDriver&) = delete;

  // Calls are counted anew; number `failing` fails, from 1 on; 0: none does.
  void FailAt(int failing) const;
  // Call number `failing` and every call after it fail.
  void LoseAt(int failing) const;
  int calls() const;
  void SetMemory(size_t bytes) const;
  size_t used_bytes() const;

 private:
  template <class Function>
  Function Find(const char* name) const;

  void* library_ = nullptr;
  std::string before_;  // what the environment named
  bool named_ = false;
};

// A device of it.
Result<std::shared_ptr<cuda::Device>> OpenEmulatedDevice();

}  // namespace kvant::test
