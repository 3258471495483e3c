#include "quant/grid_cubes.h"

#include <algorithm>
#include <cstddef>

namespace kvant::quant {
namespace {

// Points as numbers with a digit of three bits for each coordinate.
template <class Grid, size_t kBase>
std::vector<uint32_t> DigitsOf(const Grid& grid, const int8_t (&numbers)[kBase]) {
  std::vector<uint32_t> all;
  for (const auto& point : grid.points) {
    uint32_t digits = 0;
    for (int j = 0; j < Grid::kDims; ++j) {
      const auto digit = std::find(numbers, numbers + kBase, point[j]) - numbers;
      digits |= static_cast<uint32_t>(digit) << (3 * j);
    }
    all.push_back(digits);
  }
  return all;
}

template <class Grid, size_t kBase>
GridCubes<Grid> BuildCubes(const Grid& grid, const int8_t (&numbers)[kBase]) {
  using Cubes = GridCubes<Grid>;
  std::vector<bool> known(size_t{1} << (3 * Grid::kDims));
  for (const uint32_t digits : DigitsOf(grid, numbers)) known[digits] = true;
  Cubes cubes;
  for (int cube = 0; cube < Cubes::kCubes; ++cube) {
    std::vector<uint8_t> members;
    for (int choice = 0; choice < 256; ++choice) {
      uint32_t digits = 0;
      bool inside = true;
      for (int j = 0; j < Grid::kDims; ++j) {
        const int first = cube >> (Cubes::kCubeBits * j) & ((1 << Cubes::kCubeBits) - 1);
        const int added = choice >> (Cubes::kChoiceBits * j) & (Cubes::kChoices - 1);
        inside = inside && first + added < static_cast<int>(kBase);
        digits |= static_cast<uint32_t>((first + added) & 7) << (3 * j);
      }
      if (inside && known[digits]) members.push_back(static_cast<uint8_t>(choice));
    }
    auto& list = cubes.lists[static_cast<size_t>(cube)];
    list.begin = static_cast<uint32_t>(cubes.lines.size() * Cubes::kVectorBytesMax);
    list.count = static_cast<uint32_t>(members.size());
    while (members.size() < Cubes::kCountMax || members.size() % Cubes::kVectorBytesMax != 0) {
      members.push_back(members.back());
    }
    for (size_t i = 0; i < members.size(); i += Cubes::kVectorBytesMax) {
      std::copy_n(members.begin() + static_cast<ptrdiff_t>(i), Cubes::kVectorBytesMax,
                  cubes.lines.emplace_back().choices.begin());
    }
  }
  return cubes;
}

constexpr int8_t kNumbersOfIq1[] = {-8, 0, 8};

}  // namespace

const GridCubes<Grid<8, 2048, 3>>& CubesOf(const Grid<8, 2048, 3>& grid) {
  static const GridCubes cubes = BuildCubes(grid, kNumbersOfIq1);
  return cubes;
}

const GridCubes<Grid<8, 1024, 3>>& CubesOf(const Grid<8, 1024, 3>& grid) {
  static const GridCubes cubes = BuildCubes(grid, kIq2Levels);
  return cubes;
}

const GridCubes<Grid<4, 512, 8>>& CubesOf(const Grid<4, 512, 8>& grid) {
  static const GridCubes cubes = BuildCubes(grid, kIq3SLevels);
  return cubes;
}

}  // namespace kvant::quant
