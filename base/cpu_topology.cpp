#include "base/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace kvant {
namespace {

// A core with less than this share of the fastest one's speed makes others wait for it.
constexpr int64_t kFastPercent = 80;

// The number in the first line of a small file of /sys or /proc, or -1.
int64_t ReadNumber(const std::filesystem::path& path) {
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

// The number of the folder's entry "nodeN", which /sys has in the folder of each CPU.
int64_t NodeOf(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with("node") || name.size() < 5) continue;
    if (name.find_first_not_of("0123456789", 4) != std::string::npos || name.size() > 12) continue;
    return std::atoll(name.c_str() + 4);
  }
  return 0;
}

// The CPUs that the placement chooses from, the first ones first.
Result<std::vector<LogicalCpu>> Candidates(const CpuTopology& topology,
                                           const ThreadPlacement& placement, int64_t home) {
  std::vector<LogicalCpu> chosen;
  if (placement.pin == Pin::kList) {
    if (placement.cpus.empty()) {
      return MakeError(ErrorCode::kInvalid, "pin: expected a list of CPUs, found none");
    }
    std::set<int> seen;
    for (const int id : placement.cpus) {
      const LogicalCpu* cpu = topology.Find(id);
      if (cpu == nullptr) {
        std::vector<int> usable;
        for (const LogicalCpu& one : topology.cpus) usable.push_back(one.id);
        return MakeError(ErrorCode::kInvalid,
                         "pin: expected CPUs that this process may use ({}), found {}",
                         ListOfCpus(usable), id);
      }
      if (!seen.insert(id).second) {
        return MakeError(ErrorCode::kInvalid, "pin: expected every CPU once, found {} twice", id);
      }
      chosen.push_back(*cpu);
    }
  } else {
    chosen = topology.cpus;
    std::stable_sort(chosen.begin(), chosen.end(), [](const LogicalCpu& a, const LogicalCpu& b) {
      return std::tuple(a.slow, a.sibling, a.node, a.package) <
             std::tuple(b.slow, b.sibling, b.node, b.package);
    });
  }
  if (placement.numa != Numa::kIsolate) return chosen;
  const bool at_home = std::ranges::find(chosen, home, &LogicalCpu::node) != chosen.end();
  const int64_t node = at_home ? home : chosen.front().node;
  std::erase_if(chosen, [node](const LogicalCpu& cpu) { return cpu.node != node; });
  return chosen;
}

// The threads of a team node by node, each with the CPUs of its node or, pinned, with one of them.
void SpreadOverNodes(const std::vector<LogicalCpu>& chosen, Pin pin, int threads,
                     ThreadPlaces& places) {
  std::map<int64_t, std::vector<int>> by_node;
  for (const LogicalCpu& cpu : chosen) by_node[cpu.node].push_back(cpu.id);
  const auto nodes = static_cast<int>(by_node.size());
  std::map<int64_t, size_t> used;
  for (int thread = 0; thread < threads; ++thread) {
    const auto& [node, cpus] = *std::next(by_node.begin(), int64_t{thread} * nodes / threads);
    places.nodes.push_back(node);
    places.cpus.push_back(pin == Pin::kNone ? cpus : std::vector{cpus[used[node]++ % cpus.size()]});
  }
}

}  // namespace

const LogicalCpu* CpuTopology::Find(int id) const {
  const auto found = std::ranges::find(cpus, id, &LogicalCpu::id);
  return found == cpus.end() ? nullptr : &*found;
}

std::vector<int64_t> CpuTopology::Nodes() const {
  std::set<int64_t> nodes;
  for (const LogicalCpu& cpu : cpus) nodes.insert(cpu.node);
  return {nodes.begin(), nodes.end()};
}

int CpuTopology::CountCores() const {
  return static_cast<int>(std::ranges::count(cpus, 0, &LogicalCpu::sibling));
}

int CpuTopology::CountFastCores() const {
  return static_cast<int>(std::ranges::count_if(
      cpus, [](const LogicalCpu& cpu) { return cpu.sibling == 0 && !cpu.slow; }));
}

CpuMask::CpuMask(std::span<const int> cpus) {
  for (const int cpu : cpus) words_[static_cast<size_t>(cpu / kBits)] |= 1ul << (cpu % kBits);
}

CpuMask CpuMask::OfThisThread() {
  CpuMask mask;
  if (sched_getaffinity(0, sizeof(words_), reinterpret_cast<cpu_set_t*>(mask.words_.data())) != 0) {
    return {};
  }
  return mask;
}

void CpuMask::BindThisThread() const {
  sched_setaffinity(0, sizeof(words_), reinterpret_cast<const cpu_set_t*>(words_.data()));
}

std::vector<int> CpuMask::Cpus() const {
  std::vector<int> cpus;
  for (int cpu = 0; cpu < kCpusMax; ++cpu) {
    if ((words_[static_cast<size_t>(cpu / kBits)] >> (cpu % kBits) & 1) != 0) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<int> UsableCpus() {
  std::vector<int> cpus = CpuMask::OfThisThread().Cpus();
  if (cpus.empty()) {
    cpus.resize(std::max(1u, std::thread::hardware_concurrency()));
    std::iota(cpus.begin(), cpus.end(), 0);
  }
  return cpus;
}

CpuTopology ReadCpuTopology(const std::filesystem::path& sys, std::span<const int> usable) {
  CpuTopology topology;
  std::map<int64_t, int> siblings;  // by core
  int64_t fastest = 0;
  for (const int id : usable) {
    const std::filesystem::path folder = sys / fmt::format("devices/system/cpu/cpu{}", id);
    LogicalCpu cpu = {.id = id, .node = NodeOf(folder)};
    cpu.package = std::max<int64_t>(0, ReadNumber(folder / "topology/physical_package_id"));
    // A core is named after its first CPU: numbers of cores repeat from die to die.
    cpu.core = ReadNumber(folder / "topology/thread_siblings_list");
    if (cpu.core < 0) cpu.core = id;
    // The capacity of Arm, the maximal frequency of x86 with two kinds of cores.
    cpu.speed = ReadNumber(folder / "cpu_capacity");
    if (cpu.speed < 0) cpu.speed = ReadNumber(folder / "cpufreq/cpuinfo_max_freq");
    cpu.sibling = siblings[cpu.core]++;
    fastest = std::max(fastest, cpu.speed);
    topology.cpus.push_back(cpu);
  }
  for (LogicalCpu& cpu : topology.cpus) {
    cpu.slow = fastest > 0 && cpu.speed * 100 < fastest * kFastPercent;
  }
  return topology;
}

CpuTopology ThisCpuTopology() {
  const char* made_up = std::getenv("KVANT_TEST_SYS");  // a tree that tests put in place of /sys
  return ReadCpuTopology(made_up == nullptr ? "/sys" : made_up, UsableCpus());
}

int64_t CurrentNode(const CpuTopology& topology) {
  const LogicalCpu* cpu = topology.Find(sched_getcpu());
  return cpu == nullptr ? topology.cpus.front().node : cpu->node;
}

int ThreadPlaces::CountCpus() const {
  std::set<int> all;
  for (const std::vector<int>& one : cpus) all.insert(one.begin(), one.end());
  return static_cast<int>(all.size());
}

Result<ThreadPlaces> PlaceThreads(const CpuTopology& topology, const ThreadPlacement& placement,
                                  int threads, int64_t home) {
  KVANT_ASSIGN(const std::vector<LogicalCpu> chosen, Candidates(topology, placement, home));
  ThreadPlaces places;
  const bool nodes = placement.numa != Numa::kNone && topology.Nodes().size() > 1;
  if (nodes) {
    SpreadOverNodes(chosen, placement.pin, threads, places);
    return places;
  }
  if (placement.pin == Pin::kNone) return places;
  for (int thread = 0; thread < threads; ++thread) {
    places.cpus.push_back({chosen[static_cast<size_t>(thread) % chosen.size()].id});
  }
  return places;
}

Result<int> DefaultThreadCount(const ThreadPlacement& placement, std::string* reason) {
  CpuTopology topology = ThisCpuTopology();
  KVANT_ASSIGN(topology.cpus, Candidates(topology, placement, CurrentNode(topology)));
  const bool listed = placement.pin == Pin::kList;
  int threads =
      std::max(1, listed ? static_cast<int>(topology.cpus.size()) : topology.CountFastCores());
  const int quota = CgroupCpuLimit();
  if (quota > 0) threads = std::min(threads, quota);
  if (reason != nullptr) {
    *reason = fmt::format(
        "{} logical CPUs in the affinity mask, {} cores, {} of them performance cores, {}",
        topology.cpus.size(), topology.CountCores(), topology.CountFastCores(),
        quota > 0 ? fmt::format("cgroup quota {} CPUs", quota) : "no cgroup quota");
  }
  return threads;
}

int DefaultThreadCount(std::string* reason) {
  const Result<int> threads = DefaultThreadCount(ThreadPlacement(), reason);
  return threads.ok() ? *threads : 1;
}

namespace {

Status NoSuchPin(std::string_view text) {
  return MakeError(ErrorCode::kInvalid,
                   "expected none, cores, or CPUs below {} such as 0-31,64 or 0xff, found '{}'",
                   CpuMask::kCpusMax, text);
}

// A number that is all of the text.
std::optional<int> ParseCpu(std::string_view text) {
  int cpu = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), cpu);
  const bool number = error == std::errc() && end == text.data() + text.size();
  return number && cpu >= 0 && cpu < CpuMask::kCpusMax ? std::optional(cpu) : std::nullopt;
}

// The CPUs of a mask's hexadecimal digits, of which the last one is that of CPU 0 to 3.
std::optional<std::vector<int>> ParseMask(std::string_view digits) {
  std::vector<int> cpus;
  if (digits.empty() || digits.size() > size_t{CpuMask::kCpusMax} / 4) return {};
  for (size_t i = 0; i < digits.size(); ++i) {
    unsigned value = 0;
    const char* digit = digits.data() + digits.size() - 1 - i;
    if (std::from_chars(digit, digit + 1, value, 16).ptr != digit + 1) return {};
    for (unsigned bit = 0; bit < 4; ++bit) {
      if ((value >> bit & 1) != 0) cpus.push_back(static_cast<int>(4 * i + bit));
    }
  }
  return cpus;
}

// "0-31,64".
std::optional<std::vector<int>> ParseRanges(std::string_view text) {
  std::vector<int> cpus;
  while (true) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, end);
    const size_t dash = std::min(part.find('-'), part.size());
    const auto first = ParseCpu(part.substr(0, dash));
    const auto last = dash == part.size() ? first : ParseCpu(part.substr(dash + 1));
    if (!first.has_value() || !last.has_value() || *first > *last) return {};
    if (cpus.size() > CpuMask::kCpusMax) return {};
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    if (end == text.size()) return cpus;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

Status ParsePin(std::string_view text, ThreadPlacement* placement) {
  placement->cpus.clear();
  if (text == "none" || text == "cores") {
    placement->pin = text == "none" ? Pin::kNone : Pin::kCores;
    return {};
  }
  const auto cpus = text.starts_with("0x") ? ParseMask(text.substr(2)) : ParseRanges(text);
  if (!cpus.has_value() || cpus->empty()) return NoSuchPin(text);
  placement->pin = Pin::kList;
  placement->cpus = *cpus;
  return {};
}

Status ParseNuma(std::string_view text, ThreadPlacement* placement) {
  for (const auto& [name, numa] :
       {std::pair("none", Numa::kNone), std::pair("distribute", Numa::kDistribute),
        std::pair("isolate", Numa::kIsolate)}) {
    if (text != name) continue;
    placement->numa = numa;
    return {};
  }
  return MakeError(ErrorCode::kInvalid, "expected none, distribute or isolate, found '{}'", text);
}

int CountNumaNodes() { return static_cast<int>(ThisCpuTopology().Nodes().size()); }

std::string ListOfCpus(std::span<const int> cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cpus[i]);
    if (end - i > 1) text += fmt::format("-{}", cpus[end - 1]);
    i = end;
  }
  return text;
}

int CountUsableCpus() {
  const auto cpus = static_cast<int>(UsableCpus().size());
  const int quota = CgroupCpuLimit();
  return quota > 0 ? std::min(cpus, quota) : cpus;
}

}  // namespace kvant
