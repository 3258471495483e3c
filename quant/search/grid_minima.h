// The minima that a search for the nearest points of a grid takes: for each pattern of a point's
// upper half, the least error of the lower halves that the grid has with that pattern. The sets of
// lower halves have much in common, so the minimum of a pair that many sets hold is taken once.
// Such a minimum is a number of its own, after the numbers of the lower patterns. Built when first
// used, in some milliseconds.
//
// Thread-safety: minima are immutable; several threads may ask for the same ones first.
#pragma once

#include <cstdint>

#include "quant/formats/iq_grids.h"

namespace kvant::quant {

template <class Grid>
struct GridMinima {
  static constexpr int kPatterns = Grid::kPatterns;  // of a quarter of the coordinates
  static constexpr int kPairsMax = 128;
  static constexpr int kNumbers = Grid::kHalves + kPairsMax;

  // Number Grid::kHalves + i is the lesser of two that come before it.
  struct Pair {
    uint16_t first;
    uint16_t second;
  };
  // The numbers members[begin] to members[end] with an upper pattern, which is that of its lower
  // part and kPatterns times that of its upper part. Runs are in the order of their lengths, which
  // branches of loops over them are easier to foresee in.
  struct Run {
    uint16_t begin;
    uint16_t end;
    uint8_t lower_part;
    uint8_t upper_part;
  };

  int pair_count = 0;
  int run_count = 0;
  Pair pairs[kPairsMax];
  Run runs[Grid::kHalves];
  uint16_t members[Grid::kCount];
  // The number of the point with an upper pattern times Grid::kHalves plus a lower one.
  uint16_t points[Grid::kHalves * Grid::kHalves] = {};

  explicit GridMinima(const Grid& grid);
};

// The minima of a grid; defined for every grid of quant/formats/iq_grids.h.
template <class Grid>
const GridMinima<Grid>& MinimaOf(const Grid& grid);

}  // namespace kvant::quant
