// Vectors of floats for the searches of this folder, in the width of the including region, and
// numbers in 16 lanes made of them. Included inside a namespace, and a target region where there is
// one, after the constant kVectorBytes.
//
// Results do not depend on the width: sums run in 16 lanes that are added in a fixed order, and
// minima do not depend on any.

#include "quant/search/vectors.inl"

constexpr int kWidth = kVectorBytes / 4;
constexpr int kLanes = 16;

template <int kStep, class Vector, size_t... kLane>
Vector ExchangeLanes(Vector v, std::index_sequence<kLane...> /*lanes*/) {
  return __builtin_shufflevector(v, v, (kLane ^ kStep)...);
}
// Every lane's number in the lane whose number differs in the bit kStep.
template <int kStep, class Vector>
Vector Exchange(Vector v) {
  return ExchangeLanes<kStep>(v, std::make_index_sequence<kWidth>());
}

// In all lanes: the sum, of those kStep apart first, then of those half as far apart and so on.
template <int kStep, class Vector>
Vector SumOfLanes(Vector v) {
  if constexpr (kStep == 0) {
    return v;
  } else {
    return SumOfLanes<kStep / 2>(v + Exchange<kStep>(v));
  }
}

// A sum in 16 lanes: element i is added to lane i % 16.
struct LaneSum {
  Floats parts[kLanes / kWidth] = {};

  void Add(int i, Floats term) { parts[i % kLanes / kWidth] += term; }
  float Total() const {
    Floats sums[kLanes / kWidth];
    std::copy_n(parts, kLanes / kWidth, sums);
    for (int count = kLanes / kWidth / 2; count > 0; count /= 2) {
      for (int i = 0; i < count; ++i) sums[i] += sums[i + count];
    }
    return SumOfLanes<kWidth / 2>(sums[0])[0];
  }
};
