// The team's counters and the count of usable cores. Every wait goes through WaitForChange: poll
// first, then sleep in the kernel (std::atomic::wait, a futex).
#include "base/thread_pool.h"

#include <sched.h>
#include <utility>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/check.h"

namespace kvant {
namespace {

// About 30 microseconds of polling before a waiting thread sleeps: longer than the gap between two
// phases of a step, short enough that an oversubscribed machine is not starved.
constexpr int kSpins = 1000;

// Shares of a phase for each thread: what a delayed thread leaves to the others, and how long they
// wait for the share that it has begun.
constexpr int kSharesPerThread = 4;

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

// Waits until `word` differs from `old`.
void WaitForChange(const std::atomic<uint32_t>& word, uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (word.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

// The number in the first line of a small file of /sys or /proc, or -1.
int64_t ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t value = -1;
  return file >> value ? value : -1;
}

// CPUs that the cgroup's quota allows, rounded up, or 0 for no limit. Walks from our group to the
// root.
int CgroupCpuLimit() {
  std::ifstream membership("/proc/self/cgroup");
  double limit = 0;
  const auto narrow = [&limit](double cpus) {
    if (cpus > 0 && (limit == 0 || cpus < limit)) limit = cpus;
  };
  for (std::string line; std::getline(membership, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::filesystem::path group = line.substr(second + 1);
    const bool v2 = controllers.empty();
    if (!v2 && controllers.find("cpu") == std::string::npos) continue;
    const std::filesystem::path root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controllers;
    for (group = group.relative_path();; group = group.parent_path()) {
      const std::filesystem::path folder = root / group;
      if (v2) {
        std::ifstream file(folder / "cpu.max");
        std::string quota;
        double period = 0;
        if (file >> quota >> period && quota != "max" && period > 0)
          narrow(std::atof(quota.c_str()) / period);
      } else {
        const int64_t quota = ReadNumber(folder / "cpu.cfs_quota_us");
        const int64_t period = ReadNumber(folder / "cpu.cfs_period_us");
        if (quota > 0 && period > 0)
          narrow(static_cast<double>(quota) / static_cast<double>(period));
      }
      if (group.empty()) break;
    }
  }
  return static_cast<int>(std::ceil(limit));
}

void StopAll(bool& stop, auto& state, std::vector<std::thread>& workers) {
  std::atomic_ref(stop).store(true, std::memory_order_relaxed);
  state.fetch_add(2, std::memory_order_release);
  state.notify_all();
  for (std::thread& worker : workers) worker.join();
}

}  // namespace

int ThreadPool::SharesOf(int threads) { return threads == 1 ? 1 : threads * kSharesPerThread; }

ThreadPool::ThreadPool(int threads) : taken_(static_cast<size_t>(SharesOf(threads))) {
  KVANT_CHECK(threads >= 1);
  state_.value.store(kFirstState, std::memory_order_relaxed);
  workers_.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int index = 1; index < threads; ++index)
      workers_.emplace_back([this, index] { Work(index); });
  } catch (...) {  // no more threads: those that were started must end before the exception goes on
    StopAll(stop_, state_.value, workers_);
    throw;
  }
}

ThreadPool::~ThreadPool() { StopAll(stop_, state_.value, workers_); }

void ThreadPool::Run(Body body, void* context) {
  body_ = body;
  context_ = context;
  generation_.value.fetch_add(1, std::memory_order_release);
  // A phase of which nobody takes a share.
  const uint32_t phase = state_.value.load(std::memory_order_relaxed) >> 1;
  for (Counter& taken : taken_) taken.value.store(phase, std::memory_order_relaxed);
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
  state_.value.store(state, std::memory_order_release);
  state_.value.notify_all();
  while ((state & 1) == 0) {
    TakeShares(state, 0);
    WaitForChange(state_.value, state);
    state = state_.value.load(std::memory_order_acquire);
  }
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

// Computes shares of the phase while there are any: first the thread's own, then those of others,
// from their end. Who finishes the last one does what comes before the next phase, and opens that.
void ThreadPool::TakeShares(uint32_t state, int thread) {
  if ((state & 1) != 0) return;
  const uint32_t phase = state >> 1;
  const int shares = static_cast<int>(taken_.size());
  const int own = thread * kSharesPerThread;
  uint32_t finished = 0;
  for (int i = 0; i < kSharesPerThread; ++i) finished += TakeShare(phase, own + i, thread);
  for (int i = 1; i <= shares - kSharesPerThread; ++i) {
    finished += TakeShare(phase, (own + shares - i) % shares, thread);
  }
  if (finished == 0) return;
  if (done_.value.fetch_add(finished, std::memory_order_acq_rel) + finished < taken_.size()) return;
  bool more = false;
  Guarded([&] { more = next_phase_(phase_context_, Member{this, 0, 1, thread}); });
  const uint32_t next = (phase + 1) & kPhaseMask;
  done_.value.store(0, std::memory_order_relaxed);
  state_.value.store(2 * next + (more ? 0 : 1), std::memory_order_release);
  state_.value.notify_all();
}

bool ThreadPool::TakeShare(uint32_t phase, int share, int thread) {
  std::atomic<uint32_t>& taken = taken_[static_cast<size_t>(share)].value;
  uint32_t last = (phase - 1) & kPhaseMask;
  if (taken.load(std::memory_order_relaxed) != last) return false;
  if (!taken.compare_exchange_strong(last, phase, std::memory_order_acq_rel)) return false;
  Guarded([&] {
    phase_body_(phase_context_, Member{this, share, static_cast<int>(taken_.size()), thread});
  });
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

int DefaultThreadCount(std::string* reason) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
    }
  }
  if (cpus.empty()) {
    for (unsigned cpu = 0; cpu < std::max(1u, std::thread::hardware_concurrency()); ++cpu) {
      cpus.push_back(static_cast<int>(cpu));
    }
  }

  // One thread per physical core, and only cores whose capacity (Arm) or maximal frequency (x86
  // hybrids) is within 80 % of the best: efficiency cores would make the others wait.
  std::map<std::pair<int64_t, int64_t>, int64_t> cores;  // (package, core) -> speed
  for (int cpu : cpus) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/", cpu);
    int64_t core = ReadNumber(folder + "topology/core_id");
    if (core < 0) core = cpu;
    int64_t speed = ReadNumber(folder + "cpu_capacity");
    if (speed < 0) speed = ReadNumber(folder + "cpufreq/cpuinfo_max_freq");
    cores[{ReadNumber(folder + "topology/physical_package_id"), core}] = speed;
  }
  int64_t fastest = 0;
  for (const auto& [core, speed] : cores) fastest = std::max(fastest, speed);
  const auto performance = std::count_if(cores.begin(), cores.end(), [fastest](const auto& entry) {
    return entry.second * 10 >= fastest * 8;
  });

  int threads = std::max(1, static_cast<int>(performance));
  const int quota = CgroupCpuLimit();
  if (quota > 0) threads = std::min(threads, quota);
  if (reason != nullptr) {
    *reason = fmt::format(
        "{} logical CPUs in the affinity mask, {} cores, {} of them performance cores, {}",
        cpus.size(), cores.size(), performance,
        quota > 0 ? fmt::format("cgroup quota {} CPUs", quota) : "no cgroup quota");
  }
  return threads;
}

}  // namespace kvant
