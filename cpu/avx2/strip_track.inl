// The kernel of strips in AVX2 for KVANT_STRIP_TOKENS tokens: strip_tile.inl.

// totals[tokens][kPanelVectors] += `blocks` (at least 1) items of a track times the tokens of a
// tile.
template <class Traits>
[[gnu::noinline]] void AddTrack(std::integral_constant<int, KVANT_STRIP_TOKENS> /*tokens*/,
                                const __m256* panel, int64_t blocks, const TileTokens& tokens,
                                PanelActivations at, __m256* totals) {
  constexpr bool kHasOffsets = Traits::kHasOffsets;
  constexpr bool kLong = Traits::kItemColumns == 32;
  constexpr bool kWhole = Traits::kParts == 1;
  const std::byte* const* records = tokens.records;
  __m256i waiting[kPanelTokens * kPanelVectors];
  __m256i* waiting_sums = waiting;
  static constexpr PanelFactors kFactors(Traits::kFactor);
  static constexpr int32_t kOrigin = kDotOriginBits;
  static_assert(!Traits::kWide);
  if constexpr (kHasOffsets) {
    static_assert(!Traits::kBiased && Traits::kProducts == PanelProducts::kLinesTogether);
    static_assert(kLong || kWhole);
    if constexpr (kLong && kWhole) {
      KVANT_MULTIPLY_TILE(KVANT_PART_8(TOGETHER, 0)
                              KVANT_TO_ORIGIN KVANT_FLUSH_WITH_OFFSETS(0, 16));
    } else if constexpr (kLong) {
      KVANT_MULTIPLY_TILE(KVANT_PART_4(TOGETHER, 0) KVANT_TO_ORIGIN KVANT_THEN(
          KVANT_PART_4(TOGETHER, 4)) KVANT_FLUSH_WITH_OFFSETS(0, 16));
    } else {
      KVANT_MULTIPLY_TILE(KVANT_PART_4(TOGETHER, 0) KVANT_TO_ORIGIN KVANT_FLUSH_WITH_OFFSETS(0, 8));
    }
  } else {
    static_assert(Traits::kBiased);
    if constexpr (Traits::kProducts == PanelProducts::kLineAlone && kLong) {
      KVANT_MULTIPLY_TILE(KVANT_PART_8(ALONE, 0) KVANT_FROM_STARTS(0) KVANT_FLUSH(16));
    } else if constexpr (Traits::kProducts == PanelProducts::kLineAlone) {
      KVANT_MULTIPLY_TILE(KVANT_PART_4(ALONE, 0) KVANT_FROM_STARTS(0) KVANT_FLUSH(8));
    } else if constexpr (kLong && kWhole) {
      KVANT_MULTIPLY_TILE(KVANT_PART_8(TOGETHER, 0) KVANT_TO_STARTS(0) KVANT_FLUSH(16));
    } else if constexpr (kLong) {
      KVANT_MULTIPLY_TILE(KVANT_PART_4(TOGETHER, 0) KVANT_TO_STARTS(0)
                              KVANT_THEN(KVANT_PART_4(TOGETHER, 4)) KVANT_FLUSH(16));
    } else if constexpr (kWhole) {
      KVANT_MULTIPLY_TILE(KVANT_PART_4(TOGETHER, 0) KVANT_TO_STARTS(0) KVANT_FLUSH(8));
    } else {
      KVANT_MULTIPLY_TILE(KVANT_PART_2(TOGETHER, 0) KVANT_TO_STARTS(0)
                              KVANT_THEN(KVANT_PART_2(TOGETHER, 2)) KVANT_FLUSH(8));
    }
  }
}
