// Writes one token's key and value into the cache, at the places of cpu/kv_format_list.h.
//
// Included inside an instruction set's namespace and target region, after its simd.inl, math.inl
// and quantize_vector.inl; cpu/kv_format_list.h comes before the region. F16 is clamped to the
// finite range, so that only NaN in gives a non-finite value in the cache.

inline F32 ClampToF16(F32 v) {
  constexpr float kF16Max = 65504.0f;
  return Min(Broadcast(kF16Max), Max(Broadcast(-kF16Max), v));
}

// count <= kLanes numbers as a format without scales has them.
inline void StoreNumbers(float* to, F32 numbers, int64_t count) {
  if (count == kLanes) return Store(to, numbers);
  StorePartial(to, numbers, count);
}
inline void StoreNumbers(uint16_t* to, F32 numbers, int64_t count) {
  if (count == kLanes) return StoreF16(to, ClampToF16(numbers));
  StoreF16Partial(to, ClampToF16(numbers), count);
}

void StoreKey(const float* key, int64_t k_dim, KvType element, int slot, std::byte* tile,
              void* scales) {
  VisitKvVectorFormat(element, [&]<class Format>(Format) {
    using Number = typename Format::Number;
    const size_t row = static_cast<size_t>(slot);
    if constexpr (Format::kHasScales) {
      int8_t codes[kKvQ8DimMax];
      *static_cast<float*>(scales) = QuantizeVector(key, k_dim, codes);
      uint8_t* column = reinterpret_cast<uint8_t*>(tile + Format::KeyPlace(row, 0));
      const int64_t dims = static_cast<int64_t>(Format::KeyDims(static_cast<size_t>(k_dim)));
      for (int64_t d = 0; d < dims; d += 4) {  // four lie side by side
        uint8_t* four = column + Format::KeyPlace(0, static_cast<size_t>(d));
        for (int64_t i = 0; i < 4; ++i) four[i] = static_cast<uint8_t>(codes[d + i] + 128);
      }
    } else {
      constexpr int64_t kStride = Format::KeyPlace(0, 1) / sizeof(Number);
      Number* column = reinterpret_cast<Number*>(tile + Format::KeyPlace(row, 0));
      for (int64_t d = 0; d < k_dim; d += kLanes) {
        const int64_t count = Least(kLanes, k_dim - d);
        Number numbers[kLanes];
        StoreNumbers(numbers, LoadPartial(key + d, count), kLanes);
        for (int64_t i = 0; i < count; ++i) column[(d + i) * kStride] = numbers[i];
      }
    }
  });
}

void StoreValue(const float* value, int64_t v_dim, KvType element, int slot, std::byte* tile,
                void* scales) {
  VisitKvVectorFormat(element, [&]<class Format>(Format) {
    using Number = typename Format::Number;
    const size_t dims = static_cast<size_t>(v_dim);
    Number* numbers =
        reinterpret_cast<Number*>(tile + Format::ValuePlace(static_cast<size_t>(slot), 0, dims));
    if constexpr (Format::kHasScales) {
      int8_t codes[kKvQ8DimMax];
      *static_cast<float*>(scales) = QuantizeVector(value, v_dim, codes);
      constexpr int64_t kStride = Format::ValuePlace(0, 1, 1);
      for (int64_t d = 0; d < v_dim; ++d) numbers[d * kStride] = codes[d];
    } else {
      for (int64_t d = 0; d < v_dim; d += kLanes) {
        const int64_t count = Least(kLanes, v_dim - d);
        StoreNumbers(numbers + d, LoadPartial(value + d, count), count);
      }
    }
  });
}

void LayOutKeys(const float* keys, int64_t stride, int64_t count, int64_t k_dim, float* tile) {
  for (int64_t first = 0; first < count; first += kLanes) {
    const int64_t rows = Least(kLanes, count - first);
    for (int64_t d = 0; d < k_dim; d += kLanes) {
      const int64_t dims = Least(kLanes, k_dim - d);
      F32 vectors[kLanes];
#pragma GCC unroll 16
      for (int64_t r = 0; r < kLanes; ++r) {
        vectors[r] = r < rows ? LoadPartial(keys + (first + r) * stride + d, dims) : Zero();
      }
      TransposeFloats(vectors);
      for (int64_t i = 0; i < dims; ++i) Store(tile + (d + i) * kKeyTileTokens + first, vectors[i]);
    }
  }
}
