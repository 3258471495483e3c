#include "tools/serve/work_queue.h"

#include <utility>

namespace kvant::tools {

void WorkQueue::Push(Work work) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    waiting_.push_back(std::move(work));
  }
  arrived_.notify_one();
}

bool WorkQueue::idle() const {
  const std::lock_guard lock(mutex_);
  return waiting_.empty() && !working_;
}

void WorkQueue::Stop() {
  std::deque<Work> left;  // what it holds is given up without the lock
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    left.swap(waiting_);
  }
  arrived_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WorkQueue::Run() {
  while (true) {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    Work next = std::move(waiting_.front());
    waiting_.pop_front();
    working_ = true;
    lock.unlock();
    next();
    next = {};
    lock.lock();
    working_ = false;
  }
}

}  // namespace kvant::tools
