// Runs a stage of a plan on a team of threads, or on the calling thread alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/graph/plan.h"

namespace kvant::graph {

enum class Team : uint8_t {
  kAll,
  kCallerAlone,  // for passes that are too small to share
};

struct StageOptions {
  Team team = Team::kAll;
  // Read before every share; the stage is cancelled once either is set. Null: there is no flag.
  const std::atomic<bool>* cancel = nullptr;
  const std::atomic<bool>* cancel_too = nullptr;
  // The nodes [first, end) of the stage; `end` may be beyond the last.
  size_t first = 0;
  size_t end = std::numeric_limits<size_t>::max();
};

// Runs the nodes of the options on the rows of `pass`. A flag cancels the run, and so does
// the function that the calling thread asks (base/interrupt.h). After kCancelled the values are
// half written, which is harmless: the next pass writes them again.
Status RunStage(const Plan& plan, Stage stage, PassContext& pass, ThreadPool& pool,
                const StageOptions& options);

}  // namespace kvant::graph
