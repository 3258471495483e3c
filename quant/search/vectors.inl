// Vectors of floats in the words that both kinds of searches are written in: of blocks side by side
// (lane_batch.inl) and of one block after the other (lanes.inl). Included inside a namespace, and a
// target region where there is one, after the constant kVectorBytes and <cstring>.

using Floats [[gnu::vector_size(kVectorBytes)]] = float;
using Ints [[gnu::vector_size(kVectorBytes)]] = int32_t;

inline Floats Load(const float* source) {
  Floats v;
  std::memcpy(&v, source, sizeof(v));
  return v;
}
inline void Store(float* target, Floats v) { std::memcpy(target, &v, sizeof(v)); }
inline Floats Splat(float x) { return x - Floats{}; }
inline Floats Max(Floats a, Floats b) { return GreaterOf(a, b); }
inline Floats Min(Floats a, Floats b) { return LesserOf(a, b); }
