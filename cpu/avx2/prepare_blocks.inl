// Blocks of activations at the end of a row, for AVX2 and AVX-VNNI. Included inside the target
// region of matmul.cpp, after the files that arrange blocks: int8_blocks.inl, point_blocks.inl.

// A block of 256 activations of which only the first exist.
struct PaddedActivations {
  int8_t codes[256];
  float scales[8];
  float sums[16];
  float pair_sums[8];

  ActivationRow Copy(const ActivationRow& row, size_t count) {
    std::memset(this, 0, sizeof(*this));
    std::memcpy(codes, row.codes, count);
    std::memcpy(scales, row.scales, count / 32 * sizeof(float));
    std::memcpy(sums, row.sums, count / 16 * sizeof(float));
    std::memcpy(pair_sums, row.pair_sums, count / 32 * sizeof(float));
    return {codes, scales, sums, pair_sums, nullptr, nullptr};
  }
};

// Block `i` of a token; values from `cols` on are zero.
template <class Codes>
inline ActivationBlock PrepareBlock(const ActivationRow& row, int64_t cols, int64_t i) {
  const int64_t begin = i * 256;
  const int64_t count = cols - begin;
  ActivationRow rest = row.From(begin);
  PaddedActivations padded;
  if (count < 256) rest = padded.Copy(rest, static_cast<size_t>(count));
  return ArrangeBlock<Codes>(rest);
}
