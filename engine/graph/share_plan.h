// How evenly a team shares the phases of a pass, told from the plan alone: for teams and models
// that the machine at hand need not have.
//
// A thread counts with the shares that it owns; that others may take what it has not begun is left
// out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/graph/plan.h"

namespace kvant::graph {

// The kind of work that a phase spends its time on.
enum class Measure : uint8_t {
  kBytes,  // of weights and of the cache, which few tokens read
  kMacs,   // multiplications with many tokens
  kUnits,  // pieces of rows, of nodes without products
};

// The phases of a stage that are cut in the same way.
struct PhaseShares {
  std::string name;   // of their nodes, with * for the number of the layer
  int64_t count = 0;  // how many
  Measure measure = Measure::kUnits;
  // The work of each of these phases, in that measure:
  double total = 0;
  double most = 0;   // of any thread
  int64_t busy = 0;  // threads that have anything to do

  // How much longer the phase takes than it would with equal shares: 1 or more.
  double Imbalance(int64_t threads) const {
    return total == 0 ? 1 : most * static_cast<double>(threads) / total;
  }
};

struct SharePlan {
  std::vector<PhaseShares> phases;  // in the order of their first nodes; body, then head
  int64_t barriers = 0;             // phases of all stages
  int64_t alone = 0;                // nodes that one thread computes, between phases

  // Over all phases that count in the measure: of any thread in each, and of all threads.
  double Most(Measure measure) const;
  double Total(Measure measure) const;
};

SharePlan PlanShares(const Plan& plan, const PassShape& pass, int64_t threads);

}  // namespace kvant::graph
