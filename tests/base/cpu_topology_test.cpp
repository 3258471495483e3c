// Topologies of machines that are made up as trees of files like /sys, and where teams are placed
// on them; what is read from texts; threads that are bound on the machine at hand.
#include "base/cpu_topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "base/thread_pool.h"
#include "tests/temporary_folder.h"

namespace kvant {
namespace {

// A machine with a number of cores in each node and of CPUs in each core. As on most servers, the
// first CPUs of all cores come before their siblings.
class MadeUpMachine {
 public:
  MadeUpMachine(int nodes, int cores, int siblings) : siblings_(siblings), all_(nodes * cores) {
    for (int cpu = 0; cpu < all_ * siblings; ++cpu) {
      const int core = cpu % all_;
      const std::filesystem::path path = Path(cpu);
      std::filesystem::create_directories(path / "topology");
      std::filesystem::create_directory(path / fmt::format("node{}", core / cores));
      Write(path / "topology/physical_package_id", std::to_string(core / cores));
      std::string list = std::to_string(core);
      for (int other = core + all_; other < all_ * siblings; other += all_) {
        list += "," + std::to_string(other);
      }
      Write(path / "topology/thread_siblings_list", list);
    }
  }

  int cpus() const { return all_ * siblings_; }
  std::filesystem::path Path(int cpu) const {
    return folder_.path() / fmt::format("devices/system/cpu/cpu{}", cpu);
  }
  static void Write(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }

  CpuTopology Read(std::vector<int> usable = {}) const {
    if (usable.empty()) {
      usable.resize(static_cast<size_t>(cpus()));
      std::iota(usable.begin(), usable.end(), 0);
    }
    return ReadCpuTopology(folder_.path(), usable);
  }

 private:
  test::TemporaryFolder folder_;
  int siblings_;
  int all_;
};

ThreadPlaces Place(const CpuTopology& topology, const ThreadPlacement& placement, int threads,
                   int64_t home = 0) {
  const auto places = PlaceThreads(topology, placement, threads, home);
  EXPECT_TRUE(places.ok()) << places.error().message;
  return places.ok() ? *places : ThreadPlaces();
}

std::string Refusal(const CpuTopology& topology, const ThreadPlacement& placement) {
  const auto places = PlaceThreads(topology, placement, 2, 0);
  return places.ok() ? "accepted" : places.error().message;
}

TEST(CpuTopology, TwoNodesOf32CoresWithSiblings) {
  const MadeUpMachine machine(2, 32, 2);
  const CpuTopology topology = machine.Read();
  ASSERT_EQ(topology.cpus.size(), 128u);
  EXPECT_EQ(topology.CountCores(), 64);
  EXPECT_EQ(topology.CountFastCores(), 64);
  EXPECT_EQ(topology.Nodes(), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(topology.Find(31)->node, 0);
  EXPECT_EQ(topology.Find(32)->node, 1);
  EXPECT_EQ(topology.Find(95)->node, 0);
  EXPECT_EQ(topology.Find(96)->node, 1);
  EXPECT_EQ(topology.Find(96)->sibling, 1);
  EXPECT_EQ(topology.Find(96)->core, 32);
  EXPECT_EQ(topology.Find(128), nullptr);
}

TEST(CpuTopology, OfSiblingsTheFirstUsableOneCounts) {
  const MadeUpMachine machine(1, 4, 2);
  const CpuTopology topology = machine.Read({1, 4, 5, 6});
  EXPECT_EQ(topology.CountCores(), 3);
  EXPECT_EQ(topology.Find(4)->sibling, 0);
  EXPECT_EQ(topology.Find(5)->sibling, 1);
}

TEST(CpuTopology, WithoutFilesEveryCpuIsACoreOfOneNode) {
  const test::TemporaryFolder empty;
  const std::vector<int> usable = {0, 3, 9};
  const CpuTopology topology = ReadCpuTopology(empty.path(), usable);
  EXPECT_EQ(topology.CountCores(), 3);
  EXPECT_EQ(topology.CountFastCores(), 3);
  EXPECT_EQ(topology.Nodes(), std::vector<int64_t>{0});
}

TEST(CpuTopology, EfficiencyCoresComeLast) {
  const MadeUpMachine machine(1, 8, 1);
  for (int cpu = 0; cpu < 8; ++cpu) {
    MadeUpMachine::Write(machine.Path(cpu) / "cpufreq/cpuinfo_max_freq",
                         cpu < 4 ? "3000000" : "5000000");
  }
  const CpuTopology topology = machine.Read();
  EXPECT_EQ(topology.CountFastCores(), 4);
  const ThreadPlaces places = Place(topology, {.pin = Pin::kCores}, 6);
  std::vector<int> cpus;
  for (const std::vector<int>& one : places.cpus) cpus.push_back(one.front());
  EXPECT_EQ(cpus, (std::vector<int>{4, 5, 6, 7, 0, 1}));
}

TEST(CpuTopology, FilesOfTheWrongKindAreNoNumbers) {
  const MadeUpMachine machine(1, 2, 1);
  MadeUpMachine::Write(machine.Path(0) / "topology/thread_siblings_list", "no number");
  MadeUpMachine::Write(machine.Path(1) / "cpu_capacity", "");
  std::filesystem::create_directory(machine.Path(1) / "node99999999999999999999");
  std::filesystem::create_directory(machine.Path(1) / "nodes");
  const CpuTopology topology = machine.Read();
  EXPECT_EQ(topology.CountCores(), 2);
  EXPECT_EQ(topology.Nodes(), std::vector<int64_t>{0});
}

TEST(PlaceThreads, NothingAskedBindsNothing) {
  const MadeUpMachine machine(2, 4, 1);
  const ThreadPlaces places = Place(machine.Read(), {}, 8);
  EXPECT_FALSE(places.Binds());
  EXPECT_FALSE(places.PlacesMemory());
}

TEST(PlaceThreads, CoresComeBeforeSiblings) {
  const MadeUpMachine machine(2, 32, 2);
  const ThreadPlaces places = Place(machine.Read(), {.pin = Pin::kCores}, 130);
  ASSERT_EQ(places.cpus.size(), 130u);
  EXPECT_EQ(places.CountCpus(), 128);
  EXPECT_FALSE(places.PlacesMemory());
  for (int thread = 0; thread < 130; ++thread) {
    const std::vector<int>& cpus = places.cpus[static_cast<size_t>(thread)];
    ASSERT_EQ(cpus.size(), 1u);
    EXPECT_EQ(cpus.front() >= 64, thread >= 64 && thread < 128) << thread;
  }
}

TEST(PlaceThreads, DistributeGivesEachNodeAStretchOfThreads) {
  const MadeUpMachine machine(2, 32, 2);
  const CpuTopology topology = machine.Read();
  for (const int threads : {2, 7, 64, 100}) {
    const ThreadPlaces bound =
        Place(topology, {.pin = Pin::kCores, .numa = Numa::kDistribute}, threads);
    const ThreadPlaces loose = Place(topology, {.numa = Numa::kDistribute}, threads);
    EXPECT_EQ(bound.nodes, loose.nodes);
    ASSERT_EQ(std::ssize(bound.nodes), threads);
    EXPECT_TRUE(std::is_sorted(bound.nodes.begin(), bound.nodes.end()));
    const auto first = std::count(bound.nodes.begin(), bound.nodes.end(), 0);
    EXPECT_LE(std::abs(threads - 2 * static_cast<int>(first)), 1);
    EXPECT_EQ(bound.CountCpus(), std::min(threads, 128));
    std::set<int> cores;
    for (size_t i = 0; i < bound.cpus.size(); ++i) {
      EXPECT_EQ(bound.cpus[i].size(), 1u);
      EXPECT_EQ(loose.cpus[i].size(), 64u);
      for (const auto& cpus : {bound.cpus[i], loose.cpus[i]}) {
        for (const int cpu : cpus) EXPECT_EQ(topology.Find(cpu)->node, bound.nodes[i]);
      }
      cores.insert(static_cast<int>(topology.Find(bound.cpus[i].front())->core));
    }
    EXPECT_EQ(std::ssize(cores), std::min(threads, 64)) << "a core was doubled while others idle";
  }
}

TEST(PlaceThreads, IsolateStaysAtHome) {
  const MadeUpMachine machine(2, 4, 2);
  const CpuTopology topology = machine.Read();
  for (const int64_t home : {0, 1}) {
    const ThreadPlaces places = Place(topology, {.numa = Numa::kIsolate}, 12, home);
    for (const std::vector<int>& cpus : places.cpus) {
      EXPECT_EQ(cpus.size(), 8u);
      for (const int cpu : cpus) EXPECT_EQ(topology.Find(cpu)->node, home);
    }
    EXPECT_EQ(places.nodes, std::vector<int64_t>(12, home));
  }
  // A list without a CPU at home: the node of its first.
  const ThreadPlacement listed = {.pin = Pin::kList, .numa = Numa::kIsolate, .cpus = {6, 5, 13}};
  EXPECT_EQ(Place(topology, listed, 2, 0).nodes, std::vector<int64_t>(2, 1));
}

TEST(PlaceThreads, ListsAreTakenInTurn) {
  const MadeUpMachine machine(2, 4, 1);
  const ThreadPlaces places = Place(machine.Read(), {.pin = Pin::kList, .cpus = {5, 0, 2}}, 4);
  EXPECT_EQ(places.cpus, (std::vector<std::vector<int>>{{5}, {0}, {2}, {5}}));
}

TEST(PlaceThreads, OneNodeIsNoPlacement) {
  const MadeUpMachine machine(1, 4, 1);
  for (const Numa numa : {Numa::kDistribute, Numa::kIsolate}) {
    const ThreadPlaces places = Place(machine.Read(), {.numa = numa}, 4);
    EXPECT_FALSE(places.Binds());
    EXPECT_FALSE(places.PlacesMemory());
  }
}

TEST(PlaceThreads, ListsThatCannotBeAreRefused) {
  const MadeUpMachine machine(1, 8, 1);
  const CpuTopology topology = machine.Read({0, 1, 2, 5});
  EXPECT_EQ(Refusal(topology, {.pin = Pin::kList, .cpus = {1, 4}}),
            "pin: expected CPUs that this process may use (0-2,5), found 4");
  EXPECT_EQ(Refusal(topology, {.pin = Pin::kList, .cpus = {-1}}),
            "pin: expected CPUs that this process may use (0-2,5), found -1");
  EXPECT_EQ(Refusal(topology, {.pin = Pin::kList, .cpus = {5, 0, 5}}),
            "pin: expected every CPU once, found 5 twice");
  EXPECT_EQ(Refusal(topology, {.pin = Pin::kList}), "pin: expected a list of CPUs, found none");
}

TEST(ParsePin, ReadsNamesListsAndMasks) {
  const std::map<std::string, std::vector<int>> lists = {
      {"0", {0}},      {"3-5,1", {3, 4, 5, 1}},     {"8191", {8191}},
      {"0x5", {0, 2}}, {"0x80F", {0, 1, 2, 3, 11}}, {"0x00000001", {0}}};
  for (const auto& [text, cpus] : lists) {
    ThreadPlacement placement;
    ASSERT_TRUE(ParsePin(text, &placement).ok()) << text;
    EXPECT_EQ(placement, (ThreadPlacement{.pin = Pin::kList, .cpus = cpus})) << text;
  }
  ThreadPlacement placement = {.pin = Pin::kList, .cpus = {1}};
  ASSERT_TRUE(ParsePin("cores", &placement).ok());
  EXPECT_EQ(placement, ThreadPlacement{.pin = Pin::kCores});
  ASSERT_TRUE(ParsePin("none", &placement).ok());
  EXPECT_EQ(placement, ThreadPlacement());
  for (const char* text :
       {"", ",", "1,", "a", "1-", "-1", "2-1", "8192", "0x", "0x0", "0xg", "1 2", "0-8191,0-8191,7",
        "99999999999999999999", "0-99999999", "core", "1;2"}) {
    EXPECT_FALSE(ParsePin(text, &placement).ok()) << text;
  }
}

TEST(ParseNuma, ReadsItsNames) {
  ThreadPlacement placement;
  for (const auto& [text, numa] :
       {std::pair("distribute", Numa::kDistribute), std::pair("isolate", Numa::kIsolate),
        std::pair("none", Numa::kNone)}) {
    ASSERT_TRUE(ParseNuma(text, &placement).ok());
    EXPECT_EQ(placement.numa, numa);
  }
  const Status status = ParseNuma("numactl", &placement);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "expected none, distribute or isolate, found 'numactl'");
}

TEST(ListOfCpus, WritesWhatParsePinReads) {
  for (const std::vector<int>& cpus :
       {std::vector<int>{}, {4}, {0, 1}, {0, 2, 3, 4, 9}, {1, 3, 5}}) {
    ThreadPlacement placement;
    const std::string text = ListOfCpus(cpus);
    EXPECT_EQ(ParsePin(text, &placement).ok(), !cpus.empty()) << text;
    EXPECT_EQ(placement.cpus, cpus) << text;
  }
}

TEST(DefaultThreadCount, FollowsThePlacement) {
  const std::vector<int> usable = UsableCpus();
  const auto listed = DefaultThreadCount({.pin = Pin::kList, .cpus = {usable.back()}});
  ASSERT_TRUE(listed.ok());
  EXPECT_EQ(*listed, 1);
  EXPECT_FALSE(DefaultThreadCount({.pin = Pin::kList, .cpus = {CpuMask::kCpusMax - 1}}).ok());
}

// Every thread of a bound team runs where it should, and the caller gets its own mask back.
TEST(BoundTeam, ThreadsRunOnTheirCpus) {
  const std::vector<int> usable = UsableCpus();
  const int threads = 5;
  const ThreadPlaces places = Place(ThisCpuTopology(), {.pin = Pin::kCores}, threads);
  {
    ThreadPool pool(threads, places);
    std::vector<std::vector<int>> masks(threads);
    pool.Run([&](const ThreadPool::Member& member) {
      masks[static_cast<size_t>(member.index)] = CpuMask::OfThisThread().Cpus();
    });
    EXPECT_EQ(masks, places.cpus);
    EXPECT_EQ(UsableCpus(), usable);
    std::vector<std::vector<int>> of_shares(static_cast<size_t>(ThreadPool::SharesOf(threads)));
    std::vector<int> by_thread(of_shares.size());
    pool.RunPhases(3, [&](int64_t, const ThreadPool::Member& member) {
      of_shares[static_cast<size_t>(member.index)] = CpuMask::OfThisThread().Cpus();
      by_thread[static_cast<size_t>(member.index)] = member.thread;
    });
    for (size_t i = 0; i < of_shares.size(); ++i) {
      EXPECT_EQ(of_shares[i], places.cpus[static_cast<size_t>(by_thread[i])]);
    }
  }
  EXPECT_EQ(UsableCpus(), usable);
}

}  // namespace
}  // namespace kvant
