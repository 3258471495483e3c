// The CPUs that the process may use, with the cores, packages and memory nodes they belong to, as
// /sys tells; and how many of them a run should use.
//
// The root of the tree of /sys is an argument, so that tests can make machines up. What a file does
// not tell counts as one core a CPU, one package, one node.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvant/thread_placement.h"

namespace kvant {

struct LogicalCpu {
  int id = 0;
  int64_t node = 0;
  int64_t package = 0;
  int64_t core = 0;   // the number of its first CPU
  int sibling = 0;    // how many usable CPUs of the same core have a smaller id
  int64_t speed = 0;  // relative to other CPUs of the machine; below 0: unknown
  bool slow = false;  // an efficiency core: less than 80 % of the fastest CPU's speed
};

struct CpuTopology {
  std::vector<LogicalCpu> cpus;  // by id, at least one

  const LogicalCpu* Find(int id) const;
  std::vector<int64_t> Nodes() const;  // ascending
  int CountCores() const;
  int CountFastCores() const;
};

// The CPUs on which a thread may run.
class CpuMask {
 public:
  // CPUs that a mask has room for; Linux has 8192 at most.
  static constexpr int kCpusMax = 8192;

  CpuMask() = default;
  explicit CpuMask(std::span<const int> cpus);  // each below kCpusMax
  static CpuMask OfThisThread();                // none, if the system does not tell

  // Where the system refuses, the thread goes on where it may.
  void BindThisThread() const;
  std::vector<int> Cpus() const;  // ascending

 private:
  static constexpr int kBits = 8 * static_cast<int>(sizeof(unsigned long));
  std::array<unsigned long, kCpusMax / kBits> words_ = {};
};

// The CPUs of the calling thread's affinity mask, ascending; never empty.
std::vector<int> UsableCpus();

CpuTopology ReadCpuTopology(const std::filesystem::path& sys, std::span<const int> usable);
// The topology of this machine, as far as this process may use it.
CpuTopology ThisCpuTopology();

// The node of the CPU on which the caller runs.
int64_t CurrentNode(const CpuTopology& topology);

// Where each thread of a team runs, and whose memory it uses.
struct ThreadPlaces {
  std::vector<std::vector<int>> cpus;  // by thread, none empty; no threads: none is bound
  std::vector<int64_t> nodes;          // by thread; empty: memory is not placed

  bool Binds() const { return !cpus.empty(); }
  bool PlacesMemory() const { return !nodes.empty(); }
  // How many CPUs all threads together may use.
  int CountCpus() const;
};

// kInvalid for a list that is empty, or that names a CPU twice or one that is not usable. `home` is
// the node of kIsolate; where none of the listed CPUs belongs to it, that of the first one is.
Result<ThreadPlaces> PlaceThreads(const CpuTopology& topology, const ThreadPlacement& placement,
                                  int threads, int64_t home);

// How many threads a run should use by default: the performance cores that the process may use and
// the placement leaves, all CPUs of a list; not more than the cgroup's CPU quota. `reason`
// (optional) says how the number came about.
int DefaultThreadCount(std::string* reason = nullptr);
Result<int> DefaultThreadCount(const ThreadPlacement& placement, std::string* reason = nullptr);

// "0-3,8,10-11" for ascending numbers.
std::string ListOfCpus(std::span<const int> cpus);

// The number of CPUs that may be busy at the same time: CPUs of the affinity mask, within the
// cgroup's quota.
int CountUsableCpus();

}  // namespace kvant
