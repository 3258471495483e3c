// The operands of the kernels of strips (matmul_strips.inl): products of few tokens in lanes that
// belong to rows. An instruction set includes this file after its panels and before its own
// kernels.

// Tokens of a tile.
constexpr int kStripTokensMin = 4, kStripTokensMax = kPanelTokens;
// Vectors of sums of a track.
constexpr int64_t kTrackSums = kStripTokensMax * kPanelVectors;

// Where the sums of a track come from, null: zeros, and where they go, after `adds` times those
// kTrackSums vectors before have been added to them and taken their place.
struct TrackSums {
  const Accumulator* from;
  Accumulator* to;
  int64_t adds;
};
