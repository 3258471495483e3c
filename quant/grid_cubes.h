// The points of a grid by cubes, for searches: a cube leaves two neighbouring numbers to each of 8
// coordinates, or four to each of 4, so that one byte says which of its 256 points is meant, and
// the bytes of those that are in the grid are a short list. Built when first used, in a
// millisecond.
//
// Thread-safety: lists are immutable; several threads may ask for the same one first.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "quant/iq_grids.h"

namespace kvant::quant {

// Coordinate j of a cube begins at number (cube >> kCubeBits * j) mod 2^kCubeBits of those that a
// coordinate can be, and a choice adds (choice >> kChoiceBits * j) mod 2^kChoiceBits to that.
template <class Grid>
struct GridCubes {
  static constexpr int kChoiceBits = 8 / Grid::kDims;
  static constexpr int kChoices = 1 << kChoiceBits;
  static constexpr int kCubeBits = Grid::kDims == 8 ? 1 : 3;
  static constexpr int kCubes = 1 << (kCubeBits * Grid::kDims);
  // Lists are filled up to whole vectors by their last member.
  static constexpr int kVectorBytesMax = 64;
  // Of a dense grid all lists are about as long, and are taken as equally long: the longest. 0 for
  // other grids.
  static constexpr uint32_t kCountMax = Grid::kCount == 2048 ? 149 : 0;

  struct List {
    uint32_t begin = 0;  // a multiple of kVectorBytesMax
    uint32_t count = 0;  // 0 where the cube has no points, and reaches beyond the last number
  };
  struct alignas(kVectorBytesMax) Line {
    std::array<uint8_t, kVectorBytesMax> choices;
  };
  std::array<List, kCubes> lists;
  std::vector<Line> lines;

  const uint8_t* Choices(const List& list) const {
    return lines[list.begin / kVectorBytesMax].choices.data();
  }
};

// IQ1_S and IQ1_M, IQ2_S, IQ3_S.
template <class Grid>
inline constexpr bool CubesExist =
    Grid::kCount == (Grid::kDims == 4 ? 512 : 2048) || (Grid::kDims == 8 && Grid::kCount == 1024);
const GridCubes<Grid<8, 2048, 3>>& CubesOf(const Grid<8, 2048, 3>& grid);
const GridCubes<Grid<8, 1024, 3>>& CubesOf(const Grid<8, 1024, 3>& grid);
const GridCubes<Grid<4, 512, 8>>& CubesOf(const Grid<4, 512, 8>& grid);

}  // namespace kvant::quant
