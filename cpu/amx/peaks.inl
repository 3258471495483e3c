// The peak loops of AMX: bytes in tiles, all else as in cpu/avx512vnni. Included inside a
// namespace, after the tile instructions.

struct TilePeak {
  // A product takes 52 cycles and the next begins after 16: six tiles of sums are more than enough.
  // The operands are two tiles of ones, every tile 16 rows of 64 bytes.
  static constexpr int kSumTiles = 6;
  static constexpr int kSigned = kSumTiles, kUnsigned = kSumTiles + 1;
  static constexpr int kRows = 16;
  static constexpr int kRowBytes = 64;

  template <int kTile>
  static int64_t Sum() {
    alignas(64) int32_t sums[kRows][kRowBytes / 4];
    Tiles::Store<kTile>(sums, kRowBytes);
    int64_t total = 0;
    for (const auto& row : sums) {
      for (const int32_t sum : row) total += sum;
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
    alignas(64) int8_t ones[kRows][kRowBytes];
    std::memset(ones, 1, sizeof(ones));
    Tiles::Configure(config);
    Tiles::Load<kSigned>(ones, kRowBytes);
    Tiles::Load<kUnsigned>(ones, kRowBytes);
    (Tiles::Zero<kTiles>(), ...);
    for (int64_t round = 0; round < rounds; ++round) {
      (Tiles::MultiplyAdd<kTiles, kSigned, kUnsigned>(), ...);
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
      int64_t{TilePeak::kRows} * TilePeak::kRowBytes / 4 * TilePeak::kRowBytes;
  PeakLoops peaks = *avx512vnni::Peaks();
  peaks.int8 = {"tdpbsud", TilePeak::kSumTiles * kProductMacs, TilePeak::Run};
  return peaks;
}
