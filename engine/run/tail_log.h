// A log of the last rows of a sequence (engine/graph/recurrent/tail.h): which positions it holds,
// and their memory. With it a rewind on a model with recurrent layers need not compute the tokens
// between an earlier state and its target again.
//
// The rows in a log belong to the tokens of its sequence at their positions: whoever changes the
// tokens cuts the log. Thread-safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/graph/recurrent/tail.h"

namespace kvant::run {

class TailLog {
 public:
  // Makes a log for rows of `floats` values; it keeps none where there are no slots.
  TailLog(int64_t floats, int64_t slots)
      : floats_(floats), slots_(slots), rows_(static_cast<size_t>(floats * slots)) {}

  // Where a pass keeps its rows. A pass that is not completed spoils the log: Forget follows.
  graph::TailRows rows() { return {rows_.data(), floats_, slots_}; }

  // A pass has kept the last of the rows at the positions [begin, end).
  void Keep(int64_t begin, int64_t end) {
    if (begin != end_) begin_ = begin;
    end_ = end;
    begin_ = std::max(begin_, end_ - slots_);
  }

  // The positions from `length` on are gone.
  void Cut(int64_t length) {
    end_ = std::min(end_, length);
    begin_ = std::min(begin_, end_);
  }
  void Forget() { begin_ = end_ = 0; }

  bool Holds(int64_t begin, int64_t end) const { return begin >= begin_ && end <= end_; }

 private:
  int64_t floats_;
  int64_t slots_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  std::vector<float> rows_;
};

}  // namespace kvant::run
