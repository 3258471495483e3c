// The stores of a cache on a device share this: the device, the copies that wait to be made, and
// the first error. Calls of the device return errors, calls of a store do not: a user of the cache
// asks Cache::status before believing what the cache holds.
//
// Thread-safety: stores may be opened by several threads at once, for different layers.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "cuda/device.h"

namespace kvant::kv {

class DeviceSpace {
 public:
  DeviceSpace(std::shared_ptr<cuda::Device> device, cuda::MemoryKind blocks)
      : device_(std::move(device)), blocks_(blocks) {}

  // Where the memory of blocks is to be.
  cuda::MemoryKind blocks() const { return blocks_; }
  const std::shared_ptr<cuda::Device>& shared_device() const { return device_; }

  // Calls work(device) while nobody else does and no call has failed, and keeps its error.
  template <class Work>
  void Do(const Work& work) {
    const std::scoped_lock lock(mutex_);
    if (status_.ok()) status_ = work(*device_);
  }

  void QueueCopy(const cuda::CopyRange& range) { copies_.push_back(range); }
  // Makes the copies that are queued, in one launch.
  void RunCopies();

  Status status() const {
    const std::scoped_lock lock(mutex_);
    return status_;
  }
  // How often blocks were changed other than through an open block: copies of them that were taken
  // before are old.
  uint64_t changes() const { return changes_; }
  void Changed() { ++changes_; }

 private:
  Status LaunchCopies(cuda::Device& device);

  std::shared_ptr<cuda::Device> device_;
  cuda::MemoryKind blocks_;
  mutable std::mutex mutex_;
  Status status_;
  std::vector<cuda::CopyRange> copies_;
  cuda::Memory ranges_;  // of the copies under way
  uint64_t changes_ = 0;
};

}  // namespace kvant::kv
