// A fixed team of threads. Run gives every member the same body, with a barrier inside it.
// RunPhases cuts the work of each of a row of phases into shares that any member may take. Work
// that is too small to share is done between two phases, by the thread that finished the last
// share.
//
// The calling thread is member 0. Waiting members spin for some tens of microseconds and then
// sleep, so that an idle team costs nothing. In a team larger than the machine they sleep at once,
// and a phase wakes no more members than there are CPUs: others take the shares of members that
// sleep on.
//
// Threads may be bound to CPUs. The calling thread is bound to the CPUs of member 0 while it works
// for the team, and gets its own mask back.
//
// A phase ends when its shares are done, not when all threads have come: a thread that the kernel
// does not run delays the others only while it is in the midst of a share. Each thread first takes
// the shares that it owns, the same shares in every phase, then shares that others have not begun.
//
// An exception that a body or a step between phases throws ends on the calling thread, when all
// members are done; the first one counts. A body that waits at a Barrier must not throw before it.
//
// Thread-safety: Run must not be called from two threads at once, nor from inside a body.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <exception>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/cpu_topology.h"

namespace kvant {

class ThreadPool {
 public:
  // The facts that a body is told. In Run `index` is a member of the team, one of `count` members;
  // in RunPhases it is the share of the phase that the body computes, one of `count` shares.
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

  // `places`: the CPUs of each thread, or nothing where none is bound (base/cpu_topology.h).
  explicit ThreadPool(int threads, const ThreadPlaces& places = {});  // threads >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }
  // Shares of a phase for each thread: with more shares the others take over more of a delayed
  // thread's work, and wait less for the share that it has begun.
  static constexpr int kSharesPerThread = 4;
  // The number of shares that RunPhases cuts each phase into, on a team of `threads` threads.
  static int SharesOf(int threads);

  // Runs body(context, member) on every member and returns when all have finished.
  void Run(Body body, void* context);

  // Runs a callable object on every member; nothing is allocated.
  template <class Callable>
  void Run(Callable&& callable) {
    Run(&Call<std::remove_reference_t<Callable>>, Address(callable));
  }

  // Runs phases as long as next(member) returns true; a phase is body(member) for every share once.
  // next runs before each phase and after the last, on one thread while no share is under way: it
  // may do work of its own, as the only share of that work, and change the data that the body
  // reads. Changes that one phase or next made are visible to all that follow.
  template <std::invocable<const Member&> Next, class Callable>
  void RunPhases(Next&& next, Callable&& body) {
    PhaseCalls<std::remove_reference_t<Next>, std::remove_reference_t<Callable>> calls{&next,
                                                                                       &body};
    using Calls = decltype(calls);
    RunPhases(&Calls::Next, &Calls::Body, &calls);
  }

  // Runs body(phase, member) for phases [0, phases), with nothing between them.
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

  class BoundCaller;

  void RunPhases(NextPhase next, Body body, void* context);
  // Lets as many waiting threads as are useful see that a phase has opened.
  void WakeForPhase();
  void WaitForChange(const std::atomic<uint32_t>& word, uint32_t old) const;
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

  // The shares that a thread owns, on a line of their own: the last phase in which each was taken.
  struct alignas(64) OwnShares {
    std::atomic<uint32_t> taken[kSharesPerThread] = {};
  };

  const int spins_;                      // polls before a waiting thread sleeps
  const int wakes_;                      // threads that a new phase wakes; 0: all
  const std::optional<CpuMask> caller_;  // of member 0
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

  // RunPhases. Phases are numbered through the life of the pool, modulo 2^31. A thread reads the
  // fields below only when it has taken a share of the open phase, or finished its last share: they
  // cannot change before that.
  NextPhase next_phase_ = nullptr;
  Body phase_body_ = nullptr;
  void* phase_context_ = nullptr;
  std::vector<OwnShares> owned_;  // by thread
  Counter done_;                  // shares of the open phase

  // Idle workers watch this state: 2 * phase, + 1 while no phase is open; changed by Run too.
  Counter state_;
};

// The share of [0, count) that member `index` of `members` owns when work is cut at multiples of
// `tile`.
struct Range {
  int64_t begin;
  int64_t end;
};
Range OwnedRange(int64_t count, int64_t tile, int index, int members);

}  // namespace kvant
