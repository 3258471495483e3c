// A thread block whose warps run side by side, as on a device: each in a thread of its own, where
// they meet at barriers alone. A kernel that reads what another warp has not written yet, for want
// of a barrier, gives other results in some order of the warps, and is a race for the thread
// sanitizer.
#pragma once

#include <barrier>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/kernels/block.h"

namespace kvant::cuda {

enum class WarpOrder : uint8_t {
  kTogether,    // one HostBlock for all: step by step
  kFree,        // at the same time
  kAscending,   // between two barriers one warp after the other
  kDescending,  // the same from the last one on
};

// The point where the warps of a thread block meet.
class WarpMeeting {
 public:
  WarpMeeting(int warps, WarpOrder order)
      : warps_(warps),
        order_(order),
        turn_(order == WarpOrder::kDescending ? warps - 1 : 0),
        barrier_(warps) {}

  void Begin(int warp) {
    if (order_ != WarpOrder::kFree) Await(warp);
  }
  void Barrier(int warp) {
    if (order_ == WarpOrder::kFree) {
      barrier_.arrive_and_wait();
      return;
    }
    Pass();
    Await(warp);
  }
  void End() {
    if (order_ == WarpOrder::kFree) {
      barrier_.arrive_and_drop();
    } else {
      Pass();
    }
  }

 private:
  void Await(int warp) {
    std::unique_lock lock(mutex_);
    passed_.wait(lock, [&] { return turn_ == warp; });
  }
  void Pass() {
    const std::lock_guard lock(mutex_);
    turn_ = (turn_ + (order_ == WarpOrder::kDescending ? warps_ - 1 : 1)) % warps_;
    passed_.notify_all();
  }

  int warps_;
  WarpOrder order_;
  int turn_;
  std::mutex mutex_;
  std::condition_variable passed_;
  std::barrier<> barrier_;
};

// One warp of it.
class WarpBlock : public HostBlock {
 public:
  WarpBlock(const HostBlock& block, int warp, WarpMeeting& meeting)
      : HostBlock(block), warp_(warp), meeting_(meeting) {
    first = 32 * warp;
    last = first + 32;
  }
  void SetThreads(int /*threads*/) {}
  template <class Body>
  void Warps(int warps, const Body& body) {
    if (warp_ < warps) body();
  }
  template <class Body>
  void EachWarp(const Body& body) {
    body(warp_);
  }
  void Barrier() { meeting_.Barrier(warp_); }

 private:
  int warp_;
  WarpMeeting& meeting_;
};

// Runs kernel(block) for all threads of the thread block `block`.
template <class Kernel>
void RunThreadBlock(HostBlock& block, int threads, WarpOrder order, const Kernel& kernel) {
  if (order == WarpOrder::kTogether) {
    kernel(block);
    return;
  }
  WarpMeeting meeting(threads / 32, order);
  std::vector<std::thread> warps;
  for (int warp = 0; warp < threads / 32; ++warp) {
    warps.emplace_back([&, warp] {
      WarpBlock of_warp(block, warp, meeting);
      meeting.Begin(warp);
      kernel(of_warp);
      meeting.End();
    });
  }
  for (std::thread& warp : warps) warp.join();
}

}  // namespace kvant::cuda
