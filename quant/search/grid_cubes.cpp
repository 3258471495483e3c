#include "quant/search/grid_cubes.h"

#include <cstddef>
#include <vector>

#include "quant/formats/iq_grids.h"

namespace kvant::quant {
namespace {

// A digit of two bits for each coordinate.
size_t Spread(size_t bits) {
  size_t digits = 0;
  for (size_t j = 0; j < 8; ++j) digits |= (bits >> j & 1) << (2 * j);
  return digits;
}

Iq1Cubes BuildCubes() {
  std::vector<bool> known(size_t{1} << 16);
  for (const auto& point : kIq1Digits.points) {
    size_t digits = 0;
    for (int j = 0; j < 8; ++j) digits |= static_cast<size_t>(point[j]) << (2 * j);
    known[digits] = true;
  }
  Iq1Cubes cubes{};
  for (size_t cube = 0; cube < Iq1Cubes::kCubes; ++cube) {
    uint8_t* choices = cubes.choices[cube];
    int count = 0;
    for (size_t choice = 0; choice < 256; ++choice) {
      if (!known[Spread(cube) + Spread(choice)]) continue;
      choices[count++] = static_cast<uint8_t>(choice);
    }
    for (; count < Iq1Cubes::kBytes; ++count) choices[count] = choices[count - 1];
  }
  return cubes;
}

}  // namespace

const Iq1Cubes& CubesOfIq1() {
  static const Iq1Cubes cubes = BuildCubes();
  return cubes;
}

}  // namespace kvant::quant
