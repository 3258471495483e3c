// The first error of several threads that work on one thing: the others see it and stop.
// Thread-safety: all but Take, which is for when the threads are done.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include "kvant/result.h"

namespace kvant {

class FirstError {
 public:
  // Whether there has been none so far.
  bool none() const { return none_.load(std::memory_order_relaxed); }

  // Keeps the status if it is the first that is not ok.
  void Set(Status status) {
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    if (none_.exchange(false)) status_ = std::move(status);
  }

  // The error, or ok where there was none.
  Status Take() { return std::move(status_); }

 private:
  std::atomic<bool> none_{true};
  std::mutex mutex_;
  Status status_;
};

}  // namespace kvant
