// A log of what the last rows of a sequence gave to its states. From a state at an earlier position
// and the rows after it, the state at any row follows without a product with weights: the nodes
// that change states do so again (Node::ScanAgain), and get the same bits.
#pragma once

#include <cstdint>

namespace kvant::graph {

// The log of one sequence: Plan::tail_floats() floats for a position, in the place of that position
// modulo `slots`. Without slots nothing is kept.
struct TailRows {
  float* rows = nullptr;
  int64_t stride = 0;
  int64_t slots = 0;

  float* Row(int64_t position) const { return rows + position % slots * stride; }
};

// The rows of a log at the positions [begin, end).
struct TailRange {
  TailRows tail;
  int64_t begin = 0;
  int64_t end = 0;
};

}  // namespace kvant::graph
