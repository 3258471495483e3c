// The points that the indices of a trellis format stand for, in the order in which near ones are
// found: cells of 256 points that lie together, each of 16 leaves of 16 points. Cells and leaves
// are known by the boxes that their points lie in; the search reads sixteen boxes or points at
// once. Built when first used, in some milliseconds, from the generator of quant/formats/trellis.h.
//
// Thread-safety: cells are immutable; several threads may ask for the same ones first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvant::quant {

struct TrellisCells {
  static constexpr int kFanout = 16;  // leaves of a cell, points of a leaf

  int dims = 0;
  int count = 0;  // of cells, a multiple of 16
  // Sixteen after sixteen: of each four coordinates the least and the greatest numbers of the
  // boxes, plus 128: [dims / 4][2][16][4]. The four are numbers 0, 2, 1 and 3.
  std::vector<uint8_t> cells;
  std::vector<uint8_t> leaves;
  // The means of the cells' points, laid out as points are.
  std::vector<int8_t> means;
  // Sixteen after sixteen, coordinates in pairs: [dims / 2][16][2].
  std::vector<int8_t> points;
  std::vector<uint16_t> indices;  // of the points, leaf after leaf

  // Sixteen cells, and the leaves of a cell.
  const uint8_t* Cells(int n) const { return cells.data() + BytesOf(n) * 2; }
  const uint8_t* Leaves(int cell) const { return leaves.data() + BytesOf(cell) * 2; }
  const int8_t* Means(int n) const { return means.data() + BytesOf(n); }  // of sixteen cells
  const int8_t* Points(int leaf) const { return points.data() + BytesOf(leaf); }
  // Coordinate k of a point, the place of an index.
  int Number(int point, int k) const {
    return Points(point / kFanout)[k / 2 * 2 * kFanout + point % kFanout * 2 + k % 2];
  }

 private:
  ptrdiff_t BytesOf(int sixteens) const { return ptrdiff_t{sixteens} * dims * kFanout; }
};

const TrellisCells& CellsOfIq1Kt();
const TrellisCells& CellsOfIq2Kt();
const TrellisCells& CellsOfIq3Kt();         // of magnitudes
const TrellisCells& CellsOfIq4Kt(int bit);  // of the indices whose bit 15 is `bit`

}  // namespace kvant::quant
