// A fixed team of threads. Run gives every member the same body, with a barrier inside it.
// RunPhases cuts the work of each of a row of phases into shares that any member may take; what is
// too small to share is done between two phases, by the thread that finished the last share.
//
// The calling thread is member 0. Waiting members spin for some tens of microseconds and then
// sleep, so that a team larger than the machine makes progress and an idle team costs nothing.
//
// A phase ends when its shares are done, not when all threads have come: a thread that the kernel
// does not run delays the others only while it is in the midst of a share. Each thread first takes
// the shares that it owns, the same ones in every phase, then what others have not begun.
//
// What a body or a step between phases throws ends on the calling thread, when all members are
// done; the first one counts. A body that waits at a Barrier must not throw before it.
//
// Thread-safety: Run must not be called from two threads at once, nor from inside a body.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace kvant {

class ThreadPool {
 public:
  // What a body is told. In Run `index` is a member of the team, one of `count` members; in
  // RunPhases it is the share of the phase that the body computes, one of `count` shares.
  struct Member {
    ThreadPool* pool;
    int index;  // 0 <= index < count
    int count;
    int thread;  // 0 <= thread < pool->size(): the thread whose private memory the body may use
    void Barrier() const {  // only in Run: shares of a phase do not wait for each other
      if (count > 1) pool->Barrier();
    }
  };
  using Body = void (*)(void* context, const Member& member);
  using NextPhase = bool (*)(void* context, const Member& member);

  explicit ThreadPool(int threads);  // >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }
  // The number of shares that RunPhases cuts each phase into, on a team of so many threads.
  static int SharesOf(int threads);

  // Runs body(context, member) on every member and returns when all have finished.
  void Run(Body body, void* context);

  // The same for a callable object; nothing is allocated.
  template <class Callable>
  void Run(Callable&& callable) {
    Run(&Call<std::remove_reference_t<Callable>>, Address(callable));
  }

  // Runs phases as long as next(member) returns true; a phase is body(member) for every share once.
  // next runs before each phase and after the last, on one thread while no share is under way: it
  // may do work of its own, as the only share of it, and change what the body reads. What one phase
  // or next did is visible to all that follow.
  template <std::invocable<const Member&> Next, class Callable>
  void RunPhases(Next&& next, Callable&& body) {
    PhaseCalls<std::remove_reference_t<Next>, std::remove_reference_t<Callable>> calls{&next,
                                                                                       &body};
    using Calls = decltype(calls);
    RunPhases(&Calls::Next, &Calls::Body, &calls);
  }

  // The same for body(phase, member) and phases [0, phases), with nothing between them.
  template <class Callable>
  void RunPhases(int64_t phases, Callable&& body) {
    int64_t phase = -1;
    RunPhases([&](const Member&) { return ++phase < phases; },
              [&](const Member& member) { body(phase, member); });
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

  template <class NextCallable, class BodyCallable>
  struct PhaseCalls {
    NextCallable* next;
    BodyCallable* body;
    static bool Next(void* calls, const Member& member) {
      return (*static_cast<PhaseCalls*>(calls)->next)(member);
    }
    static void Body(void* calls, const Member& member) {
      (*static_cast<PhaseCalls*>(calls)->body)(member);
    }
  };

  void RunPhases(NextPhase next, Body body, void* context);
  // Keeps the first exception of any thread, which the caller of Run or RunPhases gets when all are
  // done.
  template <class Callable>
  void Guarded(const Callable& callable);
  void Rethrow();
  void Barrier();
  void Work(int index);
  void TakeShares(uint32_t state, int thread);
  bool TakeShare(uint32_t phase, int share, int thread);

  // Atomics on cache lines of their own.
  struct alignas(64) Counter {
    std::atomic<uint32_t> value{0};
  };

  std::vector<std::thread> workers_;
  bool stop_ = false;
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;

  // Run
  Body body_ = nullptr;
  void* context_ = nullptr;
  Counter generation_;  // one per Run
  Counter arrived_;
  Counter barrier_;  // barriers passed

  // RunPhases. Phases are numbered through the life of the pool, modulo 2^31. Only who has taken a
  // share of the open phase, or finished its last, reads these: they cannot change before that.
  NextPhase next_phase_ = nullptr;
  Body phase_body_ = nullptr;
  void* phase_context_ = nullptr;
  std::vector<Counter> taken_;  // by share: the last phase in which it was taken
  Counter done_;                // shares of the open phase

  // What idle workers watch: 2 * phase, + 1 while no phase is open; changed by Run too.
  Counter state_;
};

// The share of [0, count) that member `index` of `members` owns when work is cut at multiples of
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
