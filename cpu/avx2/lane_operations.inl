// The operations of quant/search/lane_operations.inl: the lesser and the greater of two, `b` where
// they do not compare, numbers from a table of 8, 16, 32 or 64 floats in permutations, and bits of
// two. Included inside the folder's namespace and target region.

inline __m256 GreaterOf(__m256 a, __m256 b) { return _mm256_max_ps(a, b); }
inline __m256 LesserOf(__m256 a, __m256 b) { return _mm256_min_ps(a, b); }

// Sixteen numbers from `table` on.
inline __m256 LookUpSixteen(const float* table, __m256i lanes) {
  const __m256 lower = _mm256_permutevar8x32_ps(_mm256_load_ps(table), lanes);
  const __m256 upper = _mm256_permutevar8x32_ps(_mm256_load_ps(table + 8), lanes);
  return _mm256_blendv_ps(lower, upper, _mm256_castsi256_ps(_mm256_slli_epi32(lanes, 28)));
}

template <class Vector, class Indices, size_t kCount>
Vector LookUp(const float (&table)[kCount], Indices index) {
  static_assert(kCount == 8 || kCount == 16 || kCount == 32 || kCount == 64);
  const __m256i lanes = reinterpret_cast<__m256i>(index);
  if constexpr (kCount == 8) {
    return _mm256_permutevar8x32_ps(_mm256_load_ps(table), lanes);
  } else if constexpr (kCount == 16) {
    return LookUpSixteen(table, lanes);
  } else if constexpr (kCount == 32) {
    return _mm256_blendv_ps(LookUpSixteen(table, lanes), LookUpSixteen(table + 16, lanes),
                            _mm256_castsi256_ps(_mm256_slli_epi32(lanes, 27)));
  } else {
    return _mm256_i32gather_ps(table, lanes, 4);
  }
}

template <class Sums, class Words>
Sums AddPairs(Sums sum, Words a, Words b) {
  return sum + reinterpret_cast<Sums>(
                   _mm256_madd_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}

template <class Sums, class Unsigned, class Bytes>
Sums AddFours(Sums sum, Unsigned a, Bytes b) {
  const __m256i pairs =
      _mm256_maddubs_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b));
  return sum + reinterpret_cast<Sums>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// The lanes of eight whose bits are set in each mask, one after the other. PEXT, which would do,
// takes hundreds of cycles on some CPUs.
struct LanesOfMasks {
  uint8_t lanes[256][8] = {};
  constexpr LanesOfMasks() {
    for (int mask = 0; mask < 256; ++mask) {
      int count = 0;
      for (int lane = 0; lane < 8; ++lane) {
        if ((mask >> lane & 1) != 0) lanes[mask][count++] = static_cast<uint8_t>(lane);
      }
    }
  }
};
constexpr LanesOfMasks kLanesOfMasks;

template <class Values>
int AppendUpTo(Values limit, Values values, Values numbers, int32_t* target) {
  const __m256i above =
      _mm256_cmpgt_epi32(reinterpret_cast<__m256i>(values), reinterpret_cast<__m256i>(limit));
  const auto mask = static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(above))) ^ 255;
  const __m256i order = _mm256_cvtepu8_epi32(
      _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kLanesOfMasks.lanes[mask])));
  const __m256i chosen = _mm256_permutevar8x32_epi32(reinterpret_cast<__m256i>(numbers), order);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), chosen);
  return std::popcount(mask);
}

template <class Words>
Words WidenBytes(const int8_t* source) {
  return reinterpret_cast<Words>(
      _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source))));
}

template <class Bits>
Bits SelectBits(Bits mask, Bits a, Bits b) {
  return (a & mask) | (b & ~mask);
}

// The operations of quant/search/byte_operations.inl, for vectors of 16 bytes and of 32.
template <class Bytes>
Bytes LookUpBytes(Bytes table, Bytes index) {
  if constexpr (sizeof(Bytes) == 16) {
    return reinterpret_cast<Bytes>(
        _mm_shuffle_epi8(reinterpret_cast<__m128i>(table), reinterpret_cast<__m128i>(index)));
  } else {
    return reinterpret_cast<Bytes>(
        _mm256_shuffle_epi8(reinterpret_cast<__m256i>(table), reinterpret_cast<__m256i>(index)));
  }
}
template <class Bytes, class Sixteen>
Bytes RepeatSixteen(Sixteen v) {
  return reinterpret_cast<Bytes>(_mm256_broadcastsi128_si256(reinterpret_cast<__m128i>(v)));
}
template <class Bytes>
Bytes AddCapped(Bytes a, Bytes b) {
  if constexpr (sizeof(Bytes) == 16) {
    return reinterpret_cast<Bytes>(
        _mm_adds_epu8(reinterpret_cast<__m128i>(a), reinterpret_cast<__m128i>(b)));
  } else {
    return reinterpret_cast<Bytes>(
        _mm256_adds_epu8(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  }
}
template <class Words>
uint16_t LeastWord(Words v) {
  return static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_minpos_epu16(reinterpret_cast<__m128i>(v))));
}
