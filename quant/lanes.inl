// Vectors of floats for the searches of this folder, in the width of the including region, and
// numbers in 16 lanes made of them. Included inside a namespace, and a target region where there is
// one, after the constant kVectorBytes.
//
// Results do not depend on the width: sums run in 16 lanes that are added in a fixed order, and
// minima do not depend on any.

#include "quant/vectors.inl"

constexpr int kWidth = kVectorBytes / 4;
constexpr int kLanes = 16;

// A sum in 16 lanes: element i is added to lane i % 16.
struct LaneSum {
  Floats parts[kLanes / kWidth] = {};

  void Add(int i, Floats term) { parts[i % kLanes / kWidth] += term; }
  float Total() const {
    float lanes[kLanes];
    std::memcpy(lanes, parts, sizeof(lanes));
    for (int width = kLanes / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    return lanes[0];
  }
};
