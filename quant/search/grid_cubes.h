// The points of the grid of IQ1 by cubes, for searches. A cube leaves two neighbouring levels to
// each of the 8 coordinates, so that one byte says which of its 256 points is meant. The bytes of
// the points that are in the grid are a short list. Built when first used, in a millisecond.
//
// Thread-safety: lists are immutable; several threads may ask for the same one first.
#pragma once

#include <cstdint>

namespace kvant::quant {

// Coordinate j of a cube is -8 or 0, or 0 or 8 where bit j of the cube's number is set; the greater
// of the two where bit j of a choice is set.
struct Iq1Cubes {
  static constexpr int kCubes = 256;
  // All lists are about as long, and are taken as equally long: the longest. They are filled up to
  // whole vectors by their last member.
  static constexpr int kCountMax = 149;
  static constexpr int kBytes = 192;
  alignas(64) uint8_t choices[kCubes][kBytes];
};
const Iq1Cubes& CubesOfIq1();

}  // namespace kvant::quant
