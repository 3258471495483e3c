// Formats of one or two bits for AVX-512 VBMI: quant/formats/q1_0.h, quant/formats/q2_0.h,
// quant/formats/iq1_bn.h. Included inside the target region of matmul.cpp, after plane_pieces.inl.

// The bits, counted in its 64-bit word, at which the four fields of kWidth bits of each lane
// begin, in LaneOrder::kGroups, where a lane's 32 bits are the fields of its group.
template <int kWidth>
struct FieldBits {
  alignas(64) uint8_t bits[4][64] = {};
  constexpr FieldBits() {
    for (int s = 0; s < 4; ++s) {
      for (int byte = 0; byte < 64; ++byte) {
        bits[s][byte] = static_cast<uint8_t>(byte / 4 % 2 * 32 + kWidth * (4 * s + byte % 4));
      }
    }
  }
};
template <int kWidth>
constexpr FieldBits<kWidth> kFieldBits;

// 16-bit words: the signs of a lane's group, then what means nothing; d of a lane's block.
struct PlacesOfQ1_0 {
  alignas(64) uint16_t signs[32] = {};
  alignas(64) uint16_t d[32] = {};
  constexpr PlacesOfQ1_0() {
    constexpr int kWords = sizeof(quant::Q1_0::Block) / 2;
    for (int lane = 0; lane < 16; ++lane) {
      const int group = FirstValue(lane, 0) / 16;
      d[lane] = static_cast<uint16_t>(group / 8 * kWords);
      signs[2 * lane] = static_cast<uint16_t>(d[lane] + 1 + group % 8);
    }
  }
};
constexpr PlacesOfQ1_0 kPlacesOfQ1_0;

// 127 and 129, as often as they fit.
struct LevelsOfQ1_0 {
  alignas(64) uint8_t bytes[64] = {};
  constexpr LevelsOfQ1_0() {
    for (int i = 0; i < 64; ++i) bytes[i] = static_cast<uint8_t>(127 + i % 2 * 2);
  }
};
constexpr LevelsOfQ1_0 kLevelsOfQ1_0;

// Two blocks of Q1_0.
struct UnpackBytesQ1_0 {
  using Codes = CodeTraits<128, false>;
  static constexpr int64_t kBytes = 2 * sizeof(quant::Q1_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const __m512i all = _mm512_maskz_loadu_epi8((uint64_t{1} << kBytes) - 1, bytes);
    const __m512i words = _mm512_permutexvar_epi16(_mm512_load_si512(kPlacesOfQ1_0.signs), all);
    const auto codes = [&](int s) __attribute__((always_inline)) {
      return LookUp64<2>(kLevelsOfQ1_0.bytes, _mm512_multishift_epi64_epi8(
                                                  _mm512_load_si512(kFieldBits<1>.bits[s]), words));
    };
    WeightBlock out;
    out.codes0 = codes(0);
    out.codes1 = codes(1);
    out.codes2 = codes(2);
    out.codes3 = codes(3);
    out.scales = _mm512_cvtph_ps(
        _mm512_castsi512_si256(_mm512_permutexvar_epi16(_mm512_load_si512(kPlacesOfQ1_0.d), all)));
    return out;
  }
};

// 16-bit words of the first 64 bytes and of the last: a lane's group, and d of its block.
struct PlacesOfQ2_0 {
  alignas(64) uint16_t codes[32] = {};
  alignas(64) uint16_t d[32] = {};
  static constexpr uint16_t Of(int word) {
    return static_cast<uint16_t>(word < 32 ? word : word - 4 + 32);
  }
  constexpr PlacesOfQ2_0() {
    constexpr int kWords = sizeof(quant::Q2_0::Block) / 2;
    for (int lane = 0; lane < 16; ++lane) {
      const int group = FirstValue(lane, 0) / 16;
      const int block = group / 4 * kWords;
      d[lane] = Of(block);
      codes[2 * lane] = Of(block + 1 + group % 4 * 2);
      codes[2 * lane + 1] = Of(block + 2 + group % 4 * 2);
    }
  }
};
constexpr PlacesOfQ2_0 kPlacesOfQ2_0;

// Four blocks of Q2_0.
struct UnpackBytesQ2_0 {
  using Codes = CodeTraits<1, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::Q2_0::Block);
  static constexpr int kScaleValues = 32;

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    static_assert(kBytes == 72);
    const __m512i first = _mm512_loadu_si512(bytes);
    const __m512i last = _mm512_loadu_si512(bytes + kBytes - 64);
    const __m512i groups =
        _mm512_permutex2var_epi16(first, _mm512_load_si512(kPlacesOfQ2_0.codes), last);
    const auto codes = [&](int s) __attribute__((always_inline)) {
      return _mm512_and_si512(
          _mm512_multishift_epi64_epi8(_mm512_load_si512(kFieldBits<2>.bits[s]), groups),
          _mm512_set1_epi8(3));
    };
    WeightBlock out;
    out.codes0 = codes(0);
    out.codes1 = codes(1);
    out.codes2 = codes(2);
    out.codes3 = codes(3);
    out.scales = _mm512_cvtph_ps(_mm512_castsi512_si256(
        _mm512_permutex2var_epi16(first, _mm512_load_si512(kPlacesOfQ2_0.d), last)));
    return out;
  }
};

// The byte that goes to the upper half of each word, and the power of 3 that the byte is multiplied
// by, for the two halves that packing words to bytes makes vector s of.
struct PlacesOfIQ1_BN {
  alignas(64) uint8_t bytes[4][2][64] = {};
  alignas(64) uint16_t powers[4][2][32] = {};
  constexpr PlacesOfIQ1_BN() {
    constexpr uint16_t kPowers[] = {81, 27, 9, 3, 1};
    for (int s = 0; s < 4; ++s) {
      for (int i = 0; i < 64; ++i) {
        const int value = FirstValue(i / 4, s) + i % 4;
        const int word = i / 16 * 8 + i % 8;
        const int byte = value / 64 * static_cast<int>(sizeof(quant::IQ1_BN::Block)) +
                         quant::IQ1_BN::Byte(value % 64);
        bytes[s][i % 16 / 8][2 * word + 1] = static_cast<uint8_t>(byte);
        powers[s][i % 16 / 8][word] = kPowers[quant::IQ1_BN::Digit(value % 64)];
      }
    }
  }
};
constexpr PlacesOfIQ1_BN kPlacesOfIQ1_BN;

// Four blocks of IQ1_BN.
struct UnpackBytesIQ1_BN {
  using Codes = CodeTraits<1, false>;
  static constexpr int64_t kBytes = 4 * sizeof(quant::IQ1_BN::Block);
  static constexpr int kScaleValues = 32;
  static constexpr bool kHasRowFactor = true;

  // A byte in the upper half of a word, times a power of 3, loses its first digits; the upper half
  // of the product with 3 is then the next one.
  [[gnu::always_inline]] static __m512i Half(__m512i all, int s, int half) {
    const __m512i bytes = _mm512_maskz_permutexvar_epi8(
        0xaaaaaaaaaaaaaaaa, _mm512_load_si512(kPlacesOfIQ1_BN.bytes[s][half]), all);
    const __m512i rest =
        _mm512_mullo_epi16(bytes, _mm512_load_si512(kPlacesOfIQ1_BN.powers[s][half]));
    return _mm512_mulhi_epu16(rest, _mm512_set1_epi16(3));
  }

  [[gnu::always_inline]] static WeightBlock Unpack(const std::byte* bytes,
                                                   const quant::FormatTraits& /*traits*/) {
    const __m512i all = _mm512_maskz_loadu_epi8((uint64_t{1} << kBytes) - 1, bytes);
    const auto codes = [&](int s) __attribute__((always_inline)) {
      return _mm512_packus_epi16(Half(all, s, 0), Half(all, s, 1));
    };
    WeightBlock out;
    out.codes0 = codes(0);
    out.codes1 = codes(1);
    out.codes2 = codes(2);
    out.codes3 = codes(3);
    out.scales = _mm512_set1_ps(1.0f);
    return out;
  }
};
