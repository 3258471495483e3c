// The peak loops of AMX. Products of quantized weights have the peak of bfloat16 numbers, which
// such weights become. Products of floats have a third of that peak, because a product with f16 or
// bf16 numbers takes at least three products of parts. All else is as in cpu/avx512vnni. With fewer
// than 64 tokens, which are multiplied in vectors, the limits are out of reach. Included inside a
// namespace, after the tile instructions.

struct TilePeak {
  // A product takes 52 cycles and the next begins after 16: six tiles of sums are more than enough.
  // The operands are two tiles of ones, every tile 16 rows of 64 bytes.
  static constexpr int kSumTiles = 6;
  static constexpr int kLeft = kSumTiles, kRight = kSumTiles + 1;
  static constexpr int kRows = 16;
  static constexpr int kRowBytes = 64;
  static constexpr uint16_t kOne = 0x3f80;

  template <int kTile>
  static int64_t Sum() {
    alignas(64) float sums[kRows][kRowBytes / 4];
    Tiles::Store<kTile>(sums, kRowBytes);
    int64_t total = 0;
    for (const auto& row : sums) {
      for (const float sum : row) total += static_cast<int64_t>(sum);
    }
    return total;
  }

  template <int... kTiles>
  static int64_t Run(std::integer_sequence<int, kTiles...> /*sums*/, int64_t rounds) {
    TileConfig config;
    for (int tile = 0; tile < kSumTiles + 2; ++tile) {
      config.rows[tile] = kRows;
      config.row_bytes[tile] = kRowBytes;
    }
    alignas(64) uint16_t ones[kRows][kRowBytes / 2];
    for (auto& row : ones) std::fill(std::begin(row), std::end(row), kOne);
    Tiles::Configure(config);
    Tiles::Load<kLeft>(ones, kRowBytes);
    Tiles::Load<kRight>(ones, kRowBytes);
    (Tiles::Zero<kTiles>(), ...);
    for (int64_t round = 0; round < rounds; ++round) {
      (Tiles::MultiplyBf16<kTiles, kLeft, kRight>(), ...);
    }
    const int64_t total = (Sum<kTiles>() + ...);
    Tiles::Release();
    return total;
  }

  static int64_t Run(int64_t rounds) {
    return Run(std::make_integer_sequence<int, kSumTiles>(), rounds);
  }
};

PeakLoops BuildPeaks() {
  constexpr int64_t kProductMacs =
      int64_t{TilePeak::kRows} * TilePeak::kRowBytes / 4 * TilePeak::kRowBytes / 2;
  PeakLoops peaks = *avx512vnni::Peaks();
  constexpr int64_t kMacs = TilePeak::kSumTiles * kProductMacs;
  constexpr int64_t kFloatProducts = 3;
  static_assert(kMacs % kFloatProducts == 0);
  peaks.int8 = {"tdpbf16ps", kMacs, TilePeak::Run};
  peaks.float32 = {"3 tdpbf16ps", kMacs / kFloatProducts,
                   [](int64_t rounds) { return TilePeak::Run(rounds) / kFloatProducts; }};
  return peaks;
}
