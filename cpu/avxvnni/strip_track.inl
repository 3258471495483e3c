// The kernel of strips in AVX-VNNI for KVANT_STRIP_TOKENS tokens: cpu/avx2/strip_tile.inl.

// totals[tokens][kPanelVectors] += `blocks` (at least 1) items of a track times the tokens of a
// tile.
template <class Traits>
[[gnu::noinline]] void AddTrack(std::integral_constant<int, KVANT_STRIP_TOKENS> /*tokens*/,
                                const __m256* panel, int64_t blocks, const TileTokens& tokens,
                                PanelActivations at, __m256* totals) {
  const std::byte* const* records = tokens.records;
  if constexpr (Traits::kItemColumns == 32 && !Traits::kHasOffsets) {
    KVANT_MULTIPLY_TILE(KVANT_STARTS(0) KVANT_LINES_0_TO_3 KVANT_LINES_4_TO_7 KVANT_FLUSH(16));
  } else if constexpr (Traits::kItemColumns == 32) {
    KVANT_MULTIPLY_TILE(KVANT_STARTS(0)
                            KVANT_LINES_0_TO_3 KVANT_LINES_4_TO_7 KVANT_FLUSH_WITH_OFFSETS(0, 16));
  } else if constexpr (!Traits::kHasOffsets) {
    KVANT_MULTIPLY_TILE(KVANT_STARTS(0) KVANT_LINES_0_TO_3 KVANT_FLUSH(8));
  } else {
    KVANT_MULTIPLY_TILE(KVANT_STARTS(0) KVANT_LINES_0_TO_3 KVANT_FLUSH_WITH_OFFSETS(0, 8));
  }
}
