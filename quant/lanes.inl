// Vectors of floats for the searches of this folder, in the width of the including region, and
// numbers in 16 lanes made of them. Included inside a namespace, and a target region where there is
// one, after the constant kVectorBytes.
//
// Results do not depend on the width: sums run in 16 lanes that are added in a fixed order, and
// minima do not depend on any.

using Floats [[gnu::vector_size(kVectorBytes)]] = float;
using Ints [[gnu::vector_size(kVectorBytes)]] = int32_t;
constexpr int kWidth = kVectorBytes / 4;

inline Floats LoadFloats(const float* from) {
  Floats v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}
inline void StoreFloats(Floats v, float* to) { std::memcpy(to, &v, sizeof(v)); }
inline Floats Splat(float x) { return x - Floats{}; }
inline Floats Least(Floats a, Floats b) { return b < a ? b : a; }

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
