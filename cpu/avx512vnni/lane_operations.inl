// The operations of quant/search/lane_operations.inl: the lesser and the greater of two, `b` where
// they do not compare, numbers from a table of 8, 16, 32 or 64 floats in permutations, and bits of
// two. Included inside the folder's namespace and target region.

inline __m512 GreaterOf(__m512 a, __m512 b) { return _mm512_max_ps(a, b); }
inline __m512 LesserOf(__m512 a, __m512 b) { return _mm512_min_ps(a, b); }

template <class Vector, class Indices, size_t kCount>
Vector LookUp(const float (&table)[kCount], Indices index) {
  static_assert(kCount == 8 || kCount == 16 || kCount == 32 || kCount == 64);
  const __m512i lanes = reinterpret_cast<__m512i>(index);
  if constexpr (kCount == 8) {
    return _mm512_permutexvar_ps(lanes, _mm512_broadcast_f32x8(_mm256_load_ps(table)));
  } else if constexpr (kCount == 16) {
    return _mm512_permutexvar_ps(lanes, _mm512_load_ps(table));
  } else if constexpr (kCount == 32) {
    return _mm512_permutex2var_ps(_mm512_load_ps(table), lanes, _mm512_load_ps(table + 16));
  } else {
    const __m512 lower =
        _mm512_permutex2var_ps(_mm512_load_ps(table), lanes, _mm512_load_ps(table + 16));
    const __m512 upper =
        _mm512_permutex2var_ps(_mm512_load_ps(table + 32), lanes, _mm512_load_ps(table + 48));
    return _mm512_mask_blend_ps(_mm512_test_epi32_mask(lanes, _mm512_set1_epi32(32)), lower, upper);
  }
}

template <class Sums, class Words>
Sums AddPairs(Sums sum, Words a, Words b) {
  return reinterpret_cast<Sums>(_mm512_dpwssd_epi32(
      reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}

template <class Sums, class Unsigned, class Bytes>
Sums AddFours(Sums sum, Unsigned a, Bytes b) {
  return reinterpret_cast<Sums>(_mm512_dpbusd_epi32(
      reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}

template <class Values>
int AppendUpTo(Values limit, Values values, Values numbers, int32_t* target) {
  const __mmask16 mask =
      _mm512_cmple_epi32_mask(reinterpret_cast<__m512i>(values), reinterpret_cast<__m512i>(limit));
  const __m512i chosen = _mm512_maskz_compress_epi32(mask, reinterpret_cast<__m512i>(numbers));
  _mm512_storeu_si512(target, chosen);
  return std::popcount(static_cast<uint32_t>(mask));
}

template <class Words>
Words WidenBytes(const int8_t* source) {
  return reinterpret_cast<Words>(
      _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source))));
}

template <class Bits>
Bits SelectBits(Bits mask, Bits a, Bits b) {
  constexpr int kFirstOfTwo = 0xca;
  return reinterpret_cast<Bits>(
      _mm512_ternarylogic_epi32(reinterpret_cast<__m512i>(mask), reinterpret_cast<__m512i>(a),
                                reinterpret_cast<__m512i>(b), kFirstOfTwo));
}

// The operations of quant/search/byte_operations.inl, for vectors of 16 bytes and of 64.
template <class Bytes>
Bytes LookUpBytes(Bytes table, Bytes index) {
  if constexpr (sizeof(Bytes) == 16) {
    return reinterpret_cast<Bytes>(
        _mm_shuffle_epi8(reinterpret_cast<__m128i>(table), reinterpret_cast<__m128i>(index)));
  } else {
    return reinterpret_cast<Bytes>(
        _mm512_shuffle_epi8(reinterpret_cast<__m512i>(table), reinterpret_cast<__m512i>(index)));
  }
}
template <class Bytes, class Sixteen>
Bytes RepeatSixteen(Sixteen v) {
  return reinterpret_cast<Bytes>(_mm512_broadcast_i32x4(reinterpret_cast<__m128i>(v)));
}
template <class Bytes>
Bytes AddCapped(Bytes a, Bytes b) {
  if constexpr (sizeof(Bytes) == 16) {
    return reinterpret_cast<Bytes>(
        _mm_adds_epu8(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
  } else {
    return reinterpret_cast<Bytes>(
        _mm512_adds_epu8(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
  }
}
template <class Words>
uint16_t LeastWord(Words v) {
  return static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_minpos_epu16(reinterpret_cast<__m128i>(v))));
}
