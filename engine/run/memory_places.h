// Puts a runner's memory on the nodes of a machine that has several, as its threads are placed
// (base/cpu_topology.h).
//
// Weights lie with the thread that owns their rows in passes of few tokens, where reading them is
// all that takes time. Rows that no thread owns, such as rows of experts, and the cache and
// activations, which all threads read, are spread over all nodes. Scratch memory lies with its
// thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/cpu_topology.h"
#include "base/numa_memory.h"
#include "base/thread_pool.h"
#include "engine/graph/plan.h"

namespace kvant::run {

// The nodes that `places` names, each once, ascending.
std::vector<int64_t> NodesOf(const ThreadPlaces& places);

// The bytes of a matrix that belong to the node of a thread.
struct OwnedBytes {
  std::span<const std::byte> bytes;
  int64_t thread;
};
// The matrices of a plan for a team, each byte at most once: where several nodes multiply with a
// matrix, the first counts.
std::vector<OwnedBytes> OwnedWeights(const graph::Plan& plan, int64_t threads);
// The matrices of which no row belongs to a thread.
std::vector<std::span<const std::byte>> SharedWeights(const graph::Plan& plan);

// Reads all weights of the plan and moves them. Where pages do not move they stay where they are.
PagesPlaced PlaceWeights(const graph::Plan& plan, const ThreadPlaces& places, ThreadPool& team);

}  // namespace kvant::run
