// A fixed team of threads that runs one body together, with a barrier inside the body.
//
// The calling thread is member 0. Waiting members spin for some tens of microseconds and then
// sleep, so that a team larger than the machine makes progress and an idle team costs nothing.
//
// Thread-safety: Run must not be called from two threads at once, nor from inside a body.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace kvant {

class ThreadPool {
 public:
  // What a body sees: its place in the team.
  struct Member {
    ThreadPool* pool;
    int index;  // 0 <= index < count
    int count;
    void Barrier() const {
      if (count > 1) pool->Barrier();
    }
  };
  using Body = void (*)(void* context, const Member& member);

  explicit ThreadPool(int threads);  // >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs body(context, member) on every member and returns when all have finished.
  void Run(Body body, void* context);

  // The same for a callable object; nothing is allocated.
  template <class Callable>
  void Run(Callable&& callable) {
    Run(&Call<std::remove_reference_t<Callable>>, Address(callable));
  }

  // On the calling thread alone, a team of one: for work that is too small to share.
  template <class Callable>
  void RunAlone(Callable&& callable) {
    callable(Member{this, 0, 1});
  }

 private:
  template <class Object>
  static void Call(void* context, const Member& member) {
    (*static_cast<Object*>(context))(member);
  }
  template <class Object>
  static void* Address(Object& object) {
    return const_cast<void*>(static_cast<const void*>(&object));
  }

  void Barrier();
  void Work(int index);

  std::vector<std::thread> workers_;
  Body body_ = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<uint32_t> generation_{0};  // one per Run
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};  // one per barrier
};

// The part of [0, count) that member `index` of `members` owns when work is cut at multiples of
// `tile`.
struct Range {
  int64_t begin;
  int64_t end;
};
Range OwnedRange(int64_t count, int64_t tile, int index, int members);

// How many threads a run should use by default: the performance cores that the process may use,
// with its CPU affinity mask and its cgroup's CPU quota respected. `reason` (optional) says how the
// number came about.
int DefaultThreadCount(std::string* reason = nullptr);

}  // namespace kvant
