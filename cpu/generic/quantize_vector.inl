// A vector as codes of 8 bits with one scale, as the cache keeps it and as queries meet such keys.
//
// Included inside an instruction set's namespace and target region, after its simd.inl and
// math.inl.

// Codes and scale of KvType::kQ8; codes[count] and following up to a multiple of 4 become 0.
inline float QuantizeVector(const float* values, int64_t count, int8_t* codes) {
  // Without the sign, floats are ordered as their bits are, and what is not finite comes last.
  constexpr uint32_t kInfinity = 0x7f800000u;
  constexpr uint32_t kVanishing = (127u - 110u) << 23;  // 2^-110: 127 divided by less may overflow
  uint32_t highest = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    bits &= 0x7fffffffu;
    highest = highest > bits ? highest : bits;
  }
  for (int64_t i = count; i % 4 != 0; ++i) codes[i] = 0;
  if (highest < kVanishing || highest >= kInfinity) {
    std::memset(codes, 0, static_cast<size_t>(count));
    return highest < kVanishing ? 0.0f : NAN;
  }
  float absmax;
  std::memcpy(&absmax, &highest, sizeof absmax);
  const F32 inverse = Broadcast(127.0f / absmax);
  for (int64_t i = 0; i < count; i += kLanes) {
    const int64_t left = Least(kLanes, count - i);
    float rounded[kLanes];
    Store(rounded, Round(Mul(LoadPartial(values + i, left), inverse)));
    for (int64_t lane = 0; lane < left; ++lane)
      codes[i + lane] = static_cast<int8_t>(rounded[lane]);
  }
  return absmax / 127.0f;
}
