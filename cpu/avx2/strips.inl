// The sums of tracks of strips in AVX2 and AVX-VNNI. Included inside the target region of
// matmul.cpp, after the kernels of strip_track.inl.

// The sums of a track += `count` of its items times the tokens of a tile, whose activations are
// `at` in their records.
template <class Traits, int kTokens>
[[gnu::always_inline]] inline void MultiplyTrack(const __m256* items, int64_t count,
                                                 const TileTokens& tokens,
                                                 const PanelActivations& at,
                                                 const TrackSums& sums) {
  if (sums.from == nullptr) {
    std::fill_n(sums.to, kTrackSums, Zero());
  } else if (sums.from != sums.to) {
    std::copy_n(sums.from, kTrackSums, sums.to);
  }
  if (count > 0) {
    AddTrack<Traits>(std::integral_constant<int, kTokens>(), items, count, tokens, at, sums.to);
  }
  __m256* to = sums.to;
  for (int64_t i = 0; i < sums.adds; ++i, to -= kTrackSums) {
    for (int64_t s = 0; s < kTrackSums; ++s) {
      to[s - kTrackSums] = _mm256_add_ps(to[s - kTrackSums], to[s]);
    }
  }
}
