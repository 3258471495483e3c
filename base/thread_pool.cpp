// The team's counters. Every wait goes through WaitForChange: poll first, then sleep in the kernel
// (std::atomic::wait, a futex).
#include "base/thread_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvant {
namespace {

// About 30 microseconds of polling before a waiting thread sleeps: longer than the gap between two
// phases of a step, short enough that a machine that others use, too, is not starved.
constexpr int kSpins = 1000;

// The CPUs that the team may keep busy.
int CpusOf(const ThreadPlaces& places) {
  const int usable = CountUsableCpus();
  return places.Binds() ? std::min(usable, places.CountCpus()) : usable;
}

constexpr uint32_t kPhaseMask = 0x7fffffff;
// Phase 1 comes next; phase 0 is the one in which all shares count as taken at first.
constexpr uint32_t kFirstState = 3;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void StopAll(bool& stop, auto& state, std::vector<std::thread>& workers) {
  std::atomic_ref(stop).store(true, std::memory_order_relaxed);
  state.fetch_add(2, std::memory_order_release);
  state.notify_all();
  for (std::thread& worker : workers) worker.join();
}

}  // namespace

// Binds the calling thread for as long as it works for the team.
class ThreadPool::BoundCaller {
 public:
  explicit BoundCaller(const std::optional<CpuMask>& mask) {
    if (!mask.has_value()) return;
    before_ = CpuMask::OfThisThread();
    mask->BindThisThread();
  }
  ~BoundCaller() {
    if (before_.has_value()) before_->BindThisThread();
  }
  BoundCaller(const BoundCaller&) = delete;
  BoundCaller& operator=(const BoundCaller&) = delete;

 private:
  std::optional<CpuMask> before_;
};

int ThreadPool::SharesOf(int threads) { return threads == 1 ? 1 : threads * kSharesPerThread; }

ThreadPool::ThreadPool(int threads, const ThreadPlaces& places)
    : spins_(threads > CpusOf(places) ? 0 : kSpins),
      wakes_(threads > CpusOf(places) ? CpusOf(places) : 0),
      caller_(places.Binds() ? std::optional(CpuMask(places.cpus.front())) : std::nullopt),
      owned_(static_cast<size_t>(threads)) {
  KVANT_CHECK(threads >= 1);
  KVANT_CHECK(!places.Binds() || std::ssize(places.cpus) == threads);
  state_.value.store(kFirstState, std::memory_order_relaxed);
  workers_.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int index = 1; index < threads; ++index) {
      CpuMask mask;
      if (places.Binds()) mask = CpuMask(places.cpus[static_cast<size_t>(index)]);
      workers_.emplace_back([this, index, bound = places.Binds(), mask] {
        if (bound) mask.BindThisThread();
        Work(index);
      });
    }
  } catch (...) {  // no more threads: those that were started must end before the exception goes on
    StopAll(stop_, state_.value, workers_);
    throw;
  }
}

ThreadPool::~ThreadPool() { StopAll(stop_, state_.value, workers_); }

// Waits until `word` differs from `old`.
void ThreadPool::WaitForChange(const std::atomic<uint32_t>& word, uint32_t old) const {
  for (int spin = 0; spin < spins_; ++spin) {
    if (word.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

void ThreadPool::WakeForPhase() {
  if (wakes_ == 0) return state_.value.notify_all();
  for (int i = 0; i < wakes_; ++i) state_.value.notify_one();
}

void ThreadPool::Run(Body body, void* context) {
  const BoundCaller bound(caller_);
  body_ = body;
  context_ = context;
  generation_.value.fetch_add(1, std::memory_order_release);
  // A phase of which nobody takes a share.
  const uint32_t phase = state_.value.load(std::memory_order_relaxed) >> 1;
  for (OwnShares& own : owned_) {
    for (std::atomic<uint32_t>& taken : own.taken) taken.store(phase, std::memory_order_relaxed);
  }
  state_.value.fetch_add(2, std::memory_order_release);
  state_.value.notify_all();
  Guarded([&] { body(context, Member{this, 0, size(), 0}); });
  Barrier();
  Rethrow();
}

template <class Callable>
void ThreadPool::Guarded(const Callable& callable) {
  try {
    callable();
  } catch (...) {
    if (!failed_.exchange(true, std::memory_order_acq_rel)) failure_ = std::current_exception();
  }
}

void ThreadPool::Rethrow() {
  if (!failed_.load(std::memory_order_acquire)) return;
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  failed_.store(false, std::memory_order_release);
  std::rethrow_exception(failure);
}

void ThreadPool::RunPhases(NextPhase next, Body body, void* context) {
  const BoundCaller bound(caller_);
  const Member alone = {this, 0, 1, 0};
  if (size() == 1) {
    while (next(context, alone)) body(context, alone);
    return;
  }
  if (!next(context, alone)) return;
  uint32_t state = state_.value.load(std::memory_order_relaxed) & ~1u;
  next_phase_ = next;
  phase_body_ = body;
  phase_context_ = context;
  done_.value.store(0, std::memory_order_relaxed);
  const uint32_t passed = barrier_.value.load(std::memory_order_relaxed);
  state_.value.store(state, std::memory_order_release);
  WakeForPhase();
  while ((state & 1) == 0) {
    TakeShares(state, 0);
    // In a team larger than the machine others are there enough: the caller sleeps to the end,
    // which then wakes it alone.
    if (wakes_ == 0) WaitForChange(state_.value, state);
    const uint32_t now = state_.value.load(std::memory_order_acquire);
    if (now == state) break;
    state = now;
  }
  if (wakes_ > 0) WaitForChange(barrier_.value, passed);
  Rethrow();
}

void ThreadPool::Work(int index) {
  uint32_t state = kFirstState;
  for (uint32_t runs = 0;;) {
    WaitForChange(state_.value, state);
    state = state_.value.load(std::memory_order_acquire);
    if (std::atomic_ref(stop_).load(std::memory_order_relaxed)) return;
    if (generation_.value.load(std::memory_order_acquire) != runs) {
      ++runs;
      Guarded([&] { body_(context_, Member{this, index, size(), index}); });
      Barrier();
    } else {
      TakeShares(state, index);
    }
  }
}

// Computes shares of the phase while there are any: first the thread's own shares, then those of
// others, from the end. The thread that finishes the last share does the work before the next
// phase, and opens that phase.
void ThreadPool::TakeShares(uint32_t state, int thread) {
  if ((state & 1) != 0) return;
  const uint32_t phase = state >> 1;
  const int threads = size();
  uint32_t finished = 0;
  for (int i = 0; i < kSharesPerThread; ++i) {
    finished += TakeShare(phase, thread * kSharesPerThread + i, thread);
  }
  for (int other = thread + threads - 1; other > thread; --other) {
    // Where a thread comes late, or had none of these shares, the phase may be over.
    if (state_.value.load(std::memory_order_relaxed) != state) break;
    for (int i = kSharesPerThread - 1; i >= 0; --i) {
      finished += TakeShare(phase, other % threads * kSharesPerThread + i, thread);
    }
  }
  if (finished == 0) return;
  const auto shares = static_cast<uint32_t>(SharesOf(threads));
  if (done_.value.fetch_add(finished, std::memory_order_acq_rel) + finished < shares) return;
  bool more = false;
  Guarded([&] { more = next_phase_(phase_context_, Member{this, 0, 1, thread}); });
  const uint32_t next = (phase + 1) & kPhaseMask;
  done_.value.store(0, std::memory_order_relaxed);
  state_.value.store(2 * next + (more ? 0 : 1), std::memory_order_release);
  if (more || wakes_ == 0) return WakeForPhase();
  // The caller waits for a barrier, as at the end of Run.
  barrier_.value.fetch_add(1, std::memory_order_release);
  barrier_.value.notify_one();
}

bool ThreadPool::TakeShare(uint32_t phase, int share, int thread) {
  std::atomic<uint32_t>& taken =
      owned_[static_cast<size_t>(share / kSharesPerThread)].taken[share % kSharesPerThread];
  uint32_t last = (phase - 1) & kPhaseMask;
  if (taken.load(std::memory_order_relaxed) != last) return false;
  if (!taken.compare_exchange_strong(last, phase, std::memory_order_acq_rel)) return false;
  Guarded([&] { phase_body_(phase_context_, Member{this, share, SharesOf(size()), thread}); });
  return true;
}

void ThreadPool::Barrier() {
  const uint32_t count = static_cast<uint32_t>(size());
  if (count == 1) return;
  const uint32_t passed = barrier_.value.load(std::memory_order_relaxed);
  if (arrived_.value.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    arrived_.value.store(0, std::memory_order_relaxed);
    barrier_.value.fetch_add(1, std::memory_order_release);
    barrier_.value.notify_all();
  } else {
    WaitForChange(barrier_.value, passed);
  }
}

Range OwnedRange(int64_t count, int64_t tile, int index, int members) {
  const int64_t tiles = (count + tile - 1) / tile;
  const int64_t begin = tiles * index / members * tile;
  const int64_t end = tiles * (index + 1) / members * tile;
  return {std::min(begin, count), std::min(end, count)};
}

}  // namespace kvant
