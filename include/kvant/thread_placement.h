// Where the threads of a runner run, and where its memory lies on machines with several nodes: CPUs
// with memory of their own, which the CPUs of other nodes reach more slowly.
//
// Only CPUs that the process may use are chosen (its affinity mask). Nothing of this changes a bit
// of any result.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvant/result.h"

namespace kvant {

enum class Pin : uint8_t {
  kNone,   // threads run where the system lets them
  kCores,  // each on a CPU of its own: one on every core first, performance cores before others
  kList,   // on ThreadPlacement::cpus in turn
};

enum class Numa : uint8_t {
  kNone,  // memory lies where the system puts it
  // Threads are spread evenly over all nodes; the rows of weights that a thread reads are moved to
  // its node, and the cache and activations are spread over all nodes page by page.
  kDistribute,
  // All threads and all memory belong to the node on which the runner is created.
  kIsolate,
};

// On a machine with one node, kDistribute and kIsolate are kNone. The weights are read from the
// file and moved when the runner is created; pages that the system does not move stay where they
// are.
struct ThreadPlacement {
  Pin pin = Pin::kNone;
  Numa numa = Numa::kNone;
  std::vector<int> cpus = {};  // of kList: numbers of CPUs, as the system counts them

  bool operator==(const ThreadPlacement&) const = default;
};

// Reads "none", "cores", or a list of CPUs: "0-31,64", or as a mask, "0xff".
Status ParsePin(std::string_view text, ThreadPlacement* placement);
// Reads "none", "distribute" or "isolate".
Status ParseNuma(std::string_view text, ThreadPlacement* placement);

// The nodes whose CPUs the process may use; at least 1.
int CountNumaNodes();

}  // namespace kvant
