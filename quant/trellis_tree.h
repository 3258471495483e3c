// The points that the indices of a trellis format stand for, as a tree in which the nearest one to
// some values is found: an inner node has 16 children and the box that each lies in, a leaf 16
// points. Built when first used, in some milliseconds, from the generator of quant/trellis.h.
//
// Thread-safety: trees are immutable; several threads may ask for the same one first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvant::quant {

struct TrellisTree {
  static constexpr int kFanout = 16;

  int dims = 0;
  // The children of the root, 2 to 16; the missing ones have boxes at infinity.
  int top = 0;
  // Of the root, of its children, and of theirs: [dims][2][16], least and greatest coordinates.
  std::vector<float> boxes;
  std::vector<float> points;      // of each leaf: [dims][16]
  std::vector<uint16_t> indices;  // of each leaf: [16]

  // Child c of node n of depth 0 or 1, as a number among all inner nodes.
  int Child(int depth, int node, int c) const {
    return depth == 0 ? 1 + c : 1 + top + (node - 1) * kFanout + c;
  }
  // Leaf c of a node of depth 2.
  int Leaf(int node, int c) const { return (node - 1 - top) * kFanout + c; }

  const float* Boxes(int node) const {
    return boxes.data() + static_cast<ptrdiff_t>(node) * dims * 2 * kFanout;
  }
  const float* Points(int leaf) const {
    return points.data() + static_cast<ptrdiff_t>(leaf) * dims * kFanout;
  }
};

const TrellisTree& TreeOfIq1Kt();
const TrellisTree& TreeOfIq2Kt();
const TrellisTree& TreeOfIq3Kt();         // of magnitudes
const TrellisTree& TreeOfIq4Kt(int bit);  // of the indices whose bit 15 is `bit`

}  // namespace kvant::quant
