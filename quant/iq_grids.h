// The codebooks of the IQ1, IQ2 and IQ3 formats: sets of points with 8 or 4 coordinates. A block
// names a point by its rank in the set, and stores signs (IQ2, IQ3) or a shift (IQ1) beside it.
//
// The sets are part of the formats; their source is ggml-common.h of llama.cpp. Every index that
// the formats' bits can hold lies inside its table.
#pragma once

#include <bit>
#include <cstdint>

namespace kvant::quant {

template <int kDims, int kCount>
struct Grid {
  int8_t points[kCount][kDims];
  alignas(64) float columns[kDims][kCount];  // the same numbers, for searches over all points
};

// Multiples of 8: the shift of +-1/8 is then +-1.
extern const Grid<8, 2048> kIq1Grid;
// Magnitudes; every value has a sign of its own.
extern const Grid<8, 256> kIq2XxsGrid;
extern const Grid<8, 512> kIq2XsGrid;
extern const Grid<8, 1024> kIq2SGrid;
extern const Grid<4, 256> kIq3XxsGrid;
extern const Grid<4, 512> kIq3SGrid;

// Where only seven of eight signs are stored, the number of minus signs is even.
inline int EvenSigns(int seven) {
  return seven | (std::popcount(static_cast<uint32_t>(seven)) & 1) << 7;
}

// codes[j] = +-point[j], minus where bit j of `signs` is set.
inline void PutSigned(const int8_t* point, int dims, int signs, int8_t* codes) {
  for (int j = 0; j < dims; ++j) {
    codes[j] = static_cast<int8_t>((signs >> j & 1) != 0 ? -point[j] : point[j]);
  }
}

}  // namespace kvant::quant
