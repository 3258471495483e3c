// The rows that a model leaves of the last tokens of a sequence, for layers that predict further
// tokens (graph::Plan::encoded): the next pass begins with the last of them, and so does a guess.
//
// A short rewind leaves the row of the token that is then the last one; after others, and where a
// sequence has its positions from elsewhere, there is none until the next pass.
// Thread-safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace kvant::run {

class HiddenRows {
 public:
  // Rows of `dim` floats of at most `most` tokens.
  HiddenRows(int64_t dim, int64_t most)
      : dim_(dim), most_(most), rows_(static_cast<size_t>(dim * most)) {}

  // The row of a position; empty where it is not known.
  std::span<const float> Of(int64_t position) const {
    if (position < begin_ || position >= end_) return {};
    return std::span(rows_).subspan(static_cast<size_t>(position % most_ * dim_),
                                    static_cast<size_t>(dim_));
  }

  // A pass has left rows at the positions [begin, end); row_of(position) is where one begins.
  template <class RowOf>
  void Keep(int64_t begin, int64_t end, const RowOf& row_of) {
    if (begin != end_) begin_ = begin;
    end_ = end;
    begin_ = std::max(begin_, end_ - most_);
    for (int64_t position = std::max(begin, begin_); position < end_; ++position) {
      std::copy_n(row_of(position), dim_, rows_.begin() + position % most_ * dim_);
    }
  }

  // The positions from `length` on are gone.
  void Cut(int64_t length) { end_ = std::clamp(length, begin_, end_); }
  void Forget() { begin_ = end_ = 0; }

 private:
  int64_t dim_;
  int64_t most_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  std::vector<float> rows_;
};

}  // namespace kvant::run
