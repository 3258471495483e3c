// The operands of the kernels of strips (matmul_strips.inl): products of few tokens in lanes that
// belong to rows. An instruction set includes this file after its panels and before its own
// kernels.

// Tokens of a tile.
constexpr int kStripTokensMin = 4, kStripTokensMax = kPanelTokens;
// Vectors of sums of a track.
constexpr int64_t kTrackSums = kStripTokensMax * kPanelVectors;

// The sums of a track come from `from` (null: zeros) and go to `to`. Before they are stored, `adds`
// times, the kTrackSums vectors before the target are added to them and become the target.
struct TrackSums {
  const Accumulator* from;
  Accumulator* to;
  int64_t adds;
};
