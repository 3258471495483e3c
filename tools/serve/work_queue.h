// A thread that does one piece of work after another, in the order in which they came.
//
// Thread-safety: any thread may call Push and idle; one thread calls Stop, and destroys the queue.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace kvant::tools {

class WorkQueue {
 public:
  using Work = std::function<void()>;

  // The thread begins at once.
  WorkQueue() : thread_([this] { Run(); }) {}
  ~WorkQueue() { Stop(); }
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Without effect once the queue has stopped.
  void Push(Work work);
  // Whether no work waits or is under way.
  bool idle() const;
  // Waits for the work under way, and gives up what waits.
  void Stop();

 private:
  void Run();

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable arrived_;
  std::deque<Work> waiting_;
  bool working_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace kvant::tools
