// Four floats from each float element type, for cpu/neon and cpu/i8mm. Included inside the target
// region of their matmul.cpp.

using F32 = float32x4_t;
constexpr int64_t kLanes = 4;
// 8 x 2 sums: enough chains of additions for one token already, and half of the 32 registers is
// left for the operands.
constexpr int kFloatTileRows = 8;
constexpr int kFloatTileTokens = 2;
// 4 x 6 sums, four vectors of weights and a broadcast.
constexpr int kFloatPanelVectors = 4;
constexpr int kFloatPanelTokens = 6;

inline F32 MulAdd(F32 a, F32 b, F32 sum) { return vfmaq_f32(sum, a, b); }
inline F32 BroadcastFloat(const float* p) { return vld1q_dup_f32(p); }
inline void StoreFloats(float* p, F32 lanes) { vst1q_f32(p, lanes); }

#include "cpu/neon/transpose.inl"

// Every element type: Load reads kLanes elements, LoadFirst `count` < kLanes of them, the rest
// zero. Pointers may be odd.
struct ElementF32 {
  static constexpr int64_t kBytes = 4;
  static F32 Load(const std::byte* p) {
    return vreinterpretq_f32_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(p)));
  }
  static F32 LoadFirst(const std::byte* p, int64_t count) {
    std::byte padded[16] = {};
    std::memcpy(padded, p, static_cast<size_t>(count) * 4);
    return Load(padded);
  }
};

inline uint16x4_t LoadHalfWords(const std::byte* p) {
  return vreinterpret_u16_u8(vld1_u8(reinterpret_cast<const uint8_t*>(p)));
}

template <class Element>
inline F32 LoadFirstHalves(const std::byte* p, int64_t count) {
  std::byte padded[8] = {};
  std::memcpy(padded, p, static_cast<size_t>(count) * 2);
  return Element::Load(padded);
}

struct ElementF16 {
  static constexpr int64_t kBytes = 2;
  static F32 Load(const std::byte* p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(LoadHalfWords(p)));
  }
  static F32 LoadFirst(const std::byte* p, int64_t count) {
    return LoadFirstHalves<ElementF16>(p, count);
  }
};

struct ElementBf16 {
  static constexpr int64_t kBytes = 2;
  static F32 Load(const std::byte* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(LoadHalfWords(p), 16));
  }
  static F32 LoadFirst(const std::byte* p, int64_t count) {
    return LoadFirstHalves<ElementBf16>(p, count);
  }
};
