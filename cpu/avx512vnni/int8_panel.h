// Panels of weights for products with 64 and more tokens, as AVX-512 VNNI multiplies them. Included
// inside the target region of matmul.cpp, after int8_blocks.h.
//
// A lane belongs to one output row, so sums never cross lanes. For every four columns there is one
// line of codes per 16 rows; VPDPBUSD multiplies it with the four activations of a token, which are
// broadcast from where the quantizer put them. A tile of 32 rows by 6 tokens has 12 independent
// chains of products in flight, each line loaded serves 6 tokens and each broadcast 32 rows.
//
// Block of 32 columns and kVectors * 16 rows:
//   codes    [8][kVectors] lines, stored as unsigned bytes; code + 128 where kBiased: the
//            accumulators then start at -128 * (sum of the activations), a number that the
//            quantizer has stored
//   scales   [kScales][kVectors] vectors of floats
//   offsets  the same, where the format has them

constexpr int64_t kPanelLanes = 16;
constexpr int kPanelTokens = 6;

// What a panel's kernel must know about a format: one scale per row for 32 or for 16 columns.
template <bool kBiasedCodes, bool kOffsets, int kScaleValues>
struct PanelTraits {
  static constexpr bool kBiased = kBiasedCodes;
  static constexpr bool kHasOffsets = kOffsets;
  static constexpr int kScales = 32 / kScaleValues;
};

template <class Traits>
constexpr int64_t PanelBlockVectors() {
  return 8 + Traits::kScales * (Traits::kHasOffsets ? 2 : 1);
}

// The activation records of a tile's tokens, and where in each of them the next 32 columns begin.
struct TileTokens {
  const std::byte* records[kPanelTokens];
  int64_t codes, scales, sums, starts;  // bytes from the beginning of a record

  template <class Traits>
  static TileTokens At(const MatMulTask& task, int64_t token, int64_t block) {
    TileTokens tile;
    std::byte* base = const_cast<std::byte*>(task.activations);
    const ActivationRow row = ActivationRowAt(base, task.cols).From(32 * block);
    for (int64_t t = 0; t < kPanelTokens; ++t) {
      // The last token stands in for those that are missing.
      tile.records[t] = base + std::min(token + t, task.tokens - 1) * task.activation_stride;
    }
    const bool pairs = Traits::kScales == 1;
    const void* sums = pairs ? row.pair_sums : row.sums;
    const void* starts = pairs ? row.pair_starts : row.starts;
    tile.codes = reinterpret_cast<std::byte*>(row.codes) - base;
    tile.scales = reinterpret_cast<std::byte*>(row.scales) - base;
    tile.sums = static_cast<const std::byte*>(sums) - base;
    tile.starts = static_cast<const std::byte*>(starts) - base;
    return tile;
  }
};

[[gnu::always_inline]] inline __m512i BroadcastInt(const std::byte* p) {
  return _mm512_set1_epi32(*reinterpret_cast<const int32_t*>(p));
}

[[gnu::always_inline]] inline __m512 BroadcastFloat(const std::byte* p) {
  return _mm512_set1_ps(*reinterpret_cast<const float*>(p));
}

// sums[kVectors][kPanelTokens] = (or +=) `blocks` blocks of a panel times the tokens of a tile.
template <class Traits, int kVectors>
[[gnu::noinline]] void MultiplyTile(const __m512i* panel, int64_t blocks, TileTokens tile,
                                    bool first, __m512* sums) {
  constexpr int kLines = 8 / Traits::kScales;
  __m512 total[kVectors][kPanelTokens];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 6
    for (int t = 0; t < kPanelTokens; ++t) {
      total[v][t] = first ? _mm512_setzero_ps() : sums[v * kPanelTokens + t];
    }
  }
  for (int64_t i = 0; i < blocks; ++i) {
    const __m512* scales = reinterpret_cast<const __m512*>(panel + 8 * kVectors);
    const __m512* offsets = scales + Traits::kScales * kVectors;
#pragma GCC unroll 2
    for (int s = 0; s < Traits::kScales; ++s) {
      __m512i dots[kVectors][kPanelTokens];
#pragma GCC unroll 6
      for (int t = 0; t < kPanelTokens; ++t) {
        const __m512i start = Traits::kBiased ? BroadcastInt(tile.records[t] + tile.starts + 4 * s)
                                              : _mm512_setzero_si512();
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) dots[v][t] = start;
      }
#pragma GCC unroll 8
      for (int line = s * kLines; line < (s + 1) * kLines; ++line) {
        __m512i weights[kVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) weights[v] = panel[line * kVectors + v];
#pragma GCC unroll 6
        for (int t = 0; t < kPanelTokens; ++t) {
          const __m512i activations = BroadcastInt(tile.records[t] + tile.codes + 4 * line);
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) {
            dots[v][t] = _mm512_dpbusd_epi32(dots[v][t], weights[v], activations);
          }
        }
      }
#pragma GCC unroll 6
      for (int t = 0; t < kPanelTokens; ++t) {
        const __m512 scale = BroadcastFloat(tile.records[t] + tile.scales);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          total[v][t] =
              _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[v][t]),
                              _mm512_mul_ps(scales[s * kVectors + v], scale), total[v][t]);
        }
        if constexpr (Traits::kHasOffsets) {
          const __m512 sum = BroadcastFloat(tile.records[t] + tile.sums + 4 * s);
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) {
            total[v][t] = _mm512_fnmadd_ps(offsets[s * kVectors + v], sum, total[v][t]);
          }
        }
      }
    }
    panel += PanelBlockVectors<Traits>() * kVectors;
    tile.codes += 32;
    tile.scales += 4;
    tile.sums += 4 * Traits::kScales;
    tile.starts += 4 * Traits::kScales;
  }
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 6
    for (int t = 0; t < kPanelTokens; ++t) sums[v * kPanelTokens + t] = total[v][t];
  }
}

// Lane r of vector l becomes lane l of vector r.
inline void TransposeLanes(__m512i* v) {
  __m512i quads[16];  // lane 4L + r of quads[4i + j] = column 4L + j of row 4i + r
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512i low01 = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    const __m512i high01 = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    const __m512i low23 = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]);
    const __m512i high23 = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
    quads[i] = _mm512_unpacklo_epi64(low01, low23);
    quads[i + 1] = _mm512_unpackhi_epi64(low01, low23);
    quads[i + 2] = _mm512_unpacklo_epi64(high01, high23);
    quads[i + 3] = _mm512_unpackhi_epi64(high01, high23);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i even01 = _mm512_shuffle_i32x4(quads[j], quads[4 + j], 0x88);
    const __m512i even23 = _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], 0x88);
    const __m512i odd01 = _mm512_shuffle_i32x4(quads[j], quads[4 + j], 0xdd);
    const __m512i odd23 = _mm512_shuffle_i32x4(quads[8 + j], quads[12 + j], 0xdd);
    v[j] = _mm512_shuffle_i32x4(even01, even23, 0x88);
    v[4 + j] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
    v[8 + j] = _mm512_shuffle_i32x4(even01, even23, 0xdd);
    v[12 + j] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
  }
}

// One block of 256 columns of 16 rows, in the order of int8_blocks.h (lane 4q + v = group 4v + q),
// to vector `v` of eight blocks of a panel.
template <class Traits, int kVectors, int kBias>
void PackBlock(const WeightBlock* rows, int64_t v, __m512i* panel) {
  static_assert(Traits::kBiased == (kBias != 0));
  constexpr int64_t kStride = PanelBlockVectors<Traits>() * kVectors;
  __m512i lanes[16];
  for (int64_t s = 0; s < 4; ++s) {
    for (int r = 0; r < 16; ++r) lanes[r] = (&rows[r].codes0)[s];
    TransposeLanes(lanes);
    const __m512i rest = _mm512_set1_epi8(static_cast<char>(128 - kBias));
    for (int64_t lane = 0; lane < 16; ++lane) {
      const int64_t group = lane % 4 * 4 + lane / 4;
      __m512i* block = panel + group / 2 * kStride;
      block[(group % 2 * 4 + s) * kVectors + v] =
          kBias == 0 || kBias == 128 ? lanes[lane] : _mm512_add_epi8(lanes[lane], rest);
    }
  }
  for (int part = 0; part < (Traits::kHasOffsets ? 2 : 1); ++part) {
    for (int r = 0; r < 16; ++r) {
      lanes[r] = _mm512_castps_si512(part == 0 ? rows[r].scales : rows[r].offsets);
    }
    TransposeLanes(lanes);
    for (int64_t lane = 0; lane < 16; ++lane) {
      const int64_t group = lane % 4 * 4 + lane / 4;
      if (group % 2 >= Traits::kScales) continue;
      __m512i* block = panel + group / 2 * kStride;
      block[(8 + part * Traits::kScales + group % 2) * kVectors + v] = lanes[lane];
    }
  }
}

inline WeightBlock ZeroBlock() {
  const __m512i zero = _mm512_setzero_si512();
  return {zero, zero, zero, zero, _mm512_setzero_ps(), _mm512_setzero_ps()};
}

// out[0..rows) = (or +=) the lanes of `sums`.
inline void StoreLanes(__m512 sums, int64_t rows, Store store, float* out) {
  const __mmask16 mask = static_cast<__mmask16>((1u << std::min<int64_t>(rows, 16)) - 1);
  if (store == Store::kAdd) sums = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), sums);
  _mm512_mask_storeu_ps(out, mask, sums);
}
