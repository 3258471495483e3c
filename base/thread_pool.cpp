// The team's three counters (generation, arrivals, phase) and the count of usable cores. Every wait
// goes through WaitForChange: poll first, then sleep in the kernel (std::atomic::wait, a futex).
#include "base/thread_pool.h"

#include <sched.h>

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

}  // namespace

ThreadPool::ThreadPool(int threads) {
  KVANT_CHECK(threads >= 1);
  workers_.reserve(static_cast<size_t>(threads - 1));
  for (int index = 1; index < threads; ++index)
    workers_.emplace_back([this, index] { Work(index); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(Body body, void* context) {
  body_ = body;
  context_ = context;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  body(context, Member{this, 0, size()});
  Barrier();
}

void ThreadPool::Work(int index) {
  for (uint32_t seen = 0;;) {
    WaitForChange(generation_, seen);
    ++seen;
    if (stop_) return;
    body_(context_, Member{this, index, size()});
    Barrier();
  }
}

void ThreadPool::Barrier() {
  const uint32_t count = static_cast<uint32_t>(size());
  if (count == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.fetch_add(1, std::memory_order_release);
    phase_.notify_all();
  } else {
    WaitForChange(phase_, phase);
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
