// Eight floats from each float element type. Included inside the target region of matmul.cpp.

// Two registers, so that the few sums of one token are enough chains of additions.
struct FloatVector {
  float32x4_t low, high;
};
constexpr int64_t kLanes = 8;
// 4 x 2 sums of two registers leave half of the 32 registers for the operands.
constexpr int kFloatTileRows = 4;
constexpr int kFloatTileTokens = 2;

inline FloatVector ZeroFloats() { return {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)}; }
inline FloatVector MultiplyAddFloats(FloatVector a, FloatVector b, FloatVector sum) {
  return {vfmaq_f32(sum.low, a.low, b.low), vfmaq_f32(sum.high, a.high, b.high)};
}
inline float SumFloats(FloatVector lanes) { return Sum(vaddq_f32(lanes.low, lanes.high)); }

// Every element type: Load reads kLanes elements, LoadFirst `count` < kLanes of them, the rest
// zero. Pointers may be odd.
struct ElementF32 {
  static constexpr int64_t kBytes = 4;
  static FloatVector Load(const std::byte* p) {
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(p);
    return {vreinterpretq_f32_u8(vld1q_u8(bytes)), vreinterpretq_f32_u8(vld1q_u8(bytes + 16))};
  }
  static FloatVector LoadFirst(const std::byte* p, int64_t count) {
    std::byte padded[32] = {};
    std::memcpy(padded, p, static_cast<size_t>(count) * 4);
    return Load(padded);
  }
};

inline uint16x8_t LoadHalfWords(const std::byte* p) {
  return vreinterpretq_u16_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(p)));
}

template <class Element>
inline FloatVector LoadFirstHalves(const std::byte* p, int64_t count) {
  std::byte padded[16] = {};
  std::memcpy(padded, p, static_cast<size_t>(count) * 2);
  return Element::Load(padded);
}

struct ElementF16 {
  static constexpr int64_t kBytes = 2;
  static FloatVector Load(const std::byte* p) {
    const float16x8_t halves = vreinterpretq_f16_u16(LoadHalfWords(p));
    return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
  }
  static FloatVector LoadFirst(const std::byte* p, int64_t count) {
    return LoadFirstHalves<ElementF16>(p, count);
  }
};

struct ElementBf16 {
  static constexpr int64_t kBytes = 2;
  static FloatVector Load(const std::byte* p) {
    const uint16x8_t halves = LoadHalfWords(p);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(halves), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(halves, 16))};
  }
  static FloatVector LoadFirst(const std::byte* p, int64_t count) {
    return LoadFirstHalves<ElementBf16>(p, count);
  }
};
