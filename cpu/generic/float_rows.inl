// Rows of F32, F16 and BF16: the conversions of base/half.h, kLanes values at a time.
//
// Included inside an instruction set's namespace and target region, after
// quant/search/lane_batch.inl.

using Halves [[gnu::vector_size(2 * kLanes)]] = uint16_t;

inline Halves Narrow(Ints v) { return __builtin_convertvector(v, Halves); }
inline Ints Widen(Halves v) { return __builtin_convertvector(v, Ints); }

struct ConvertF16 {
  static float Decode(uint16_t half) { return F16ToF32(half); }
  static uint16_t Encode(float value) { return F32ToF16(value); }

  static Floats Decode(Halves halves) {
    const Ints bits = Widen(halves);
    const Ints magnitude = bits & 0x7fff;
    const Ints shifted = magnitude << 13;
    const Ints normal = shifted + (112 << 23);
    const Ints special = shifted | 0x7f800000;  // infinity and NaN
    const Ints subnormal = Bits(__builtin_convertvector(magnitude, Floats) * 0x1p-24f);
    const Ints finite = magnitude < 0x400 ? subnormal : normal;
    return FromBits((magnitude >= 0x7c00 ? special : finite) | (bits & 0x8000) << 16);
  }
  static Halves Encode(Floats values) {
    const Ints bits = Bits(values);
    const Ints magnitude = bits & 0x7fffffff;
    const Ints upper = magnitude >> 13;
    const Ints normal = upper - 0x1c000 + (((magnitude & 0x1fff) + 0xfff + (upper & 1)) >> 13);
    const Ints subnormal = Bits(FromBits(magnitude) + 0.5f) - 0x3f000000;
    const Ints finite = magnitude < 0x38800000 ? subnormal : normal;
    const Ints infinite = magnitude > 0x7f800000 ? Ints{} + 0x7e00 : Ints{} + 0x7c00;
    return Narrow((magnitude >= 0x477ff000 ? infinite : finite) | (bits >> 16 & 0x8000));
  }
};

struct ConvertBf16 {
  static float Decode(uint16_t half) { return Bf16ToF32(half); }
  static uint16_t Encode(float value) { return F32ToBf16(value); }

  static Floats Decode(Halves halves) { return FromBits(Widen(halves) << 16); }
  static Halves Encode(Floats values) {
    const Ints bits = Bits(values);
    const Ints upper = bits >> 16;
    const Ints rounded = upper + (((bits & 0xffff) + 0x7fff + (upper & 1)) >> 16);
    const Ints quiet = upper | 0x40;
    return Narrow((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
  }
};

template <class Convert>
void DecodeHalves(const std::byte* blocks, float* values, int64_t n_values) {
  int64_t i = 0;
  for (; i + kLanes <= n_values; i += kLanes) {
    Halves halves;
    std::memcpy(&halves, blocks + 2 * i, sizeof(halves));
    Store(values + i, Convert::Decode(halves));
  }
  for (; i < n_values; ++i) {
    uint16_t half;
    std::memcpy(&half, blocks + 2 * i, sizeof(half));
    values[i] = Convert::Decode(half);
  }
}

template <class Convert>
void EncodeHalves(const EncodeTask& task) {
  const int64_t n_values = task.rows * task.cols;
  int64_t i = 0;
  for (; i + kLanes <= n_values; i += kLanes) {
    const Halves halves = Convert::Encode(Load(task.values + i));
    std::memcpy(task.blocks + 2 * i, &halves, sizeof(halves));
  }
  for (; i < n_values; ++i) {
    const uint16_t half = Convert::Encode(task.values[i]);
    std::memcpy(task.blocks + 2 * i, &half, sizeof(half));
  }
}

void DecodeF32(const std::byte* blocks, float* values, int64_t n_values) {
  std::memcpy(values, blocks, static_cast<size_t>(n_values) * sizeof(float));
}

void EncodeF32(const EncodeTask& task) {
  std::memcpy(task.blocks, task.values, static_cast<size_t>(task.rows * task.cols) * sizeof(float));
}
