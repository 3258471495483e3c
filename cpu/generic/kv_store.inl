// Writes one token's key and value into the cache: keys as a column of a tile [k_dim][16 tokens],
// values as a row.
//
// Included inside an instruction set's namespace and target region, after its simd.h and math.inl.
// F16 is clamped to the finite range, so that only NaN in gives a non-finite value in the cache.

inline F32 ClampToF16(F32 v) {
  constexpr float kF16Max = 65504.0f;
  return Min(Broadcast(kF16Max), Max(Broadcast(-kF16Max), v));
}

void StoreKey(const float* key, int64_t k_dim, KvElement element, int slot, std::byte* tile) {
  if (element == KvElement::kF32) {
    float* column = reinterpret_cast<float*>(tile) + slot;
    for (int64_t d = 0; d < k_dim; ++d) column[d * kKeyTileTokens] = key[d];
    return;
  }
  uint16_t* column = reinterpret_cast<uint16_t*>(tile) + slot;
  for (int64_t d = 0; d < k_dim; d += kLanes) {
    const int64_t count = Least(kLanes, k_dim - d);
    uint16_t halves[kLanes];
    StoreF16(halves, ClampToF16(LoadPartial(key + d, count)));
    for (int64_t i = 0; i < count; ++i) column[(d + i) * kKeyTileTokens] = halves[i];
  }
}

void StoreValue(const float* value, int64_t v_dim, KvElement element, std::byte* row) {
  if (element == KvElement::kF32) {
    std::memcpy(row, value, static_cast<size_t>(v_dim) * sizeof(float));
    return;
  }
  uint16_t* halves = reinterpret_cast<uint16_t*>(row);
  int64_t d = 0;
  for (; d + kLanes <= v_dim; d += kLanes) StoreF16(halves + d, ClampToF16(Load(value + d)));
  const int64_t rest = v_dim - d;
  if (rest > 0) StoreF16Partial(halves + d, ClampToF16(LoadPartial(value + d, rest)), rest);
}
