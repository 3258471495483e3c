// Operands of attention's tile products, and the products of grids of tiles.
//
// Included inside the target region of attention.cpp, after tile.inl.
//
// Numbers that are not codes of 8 bits are sums of bfloat16 numbers, their parts: the first part is
// the number rounded, each next part is the rest, rounded. Keys and values of f16 (11 bits) are
// exact in two parts, those of f32 in three; queries and weights have as many parts as the operand
// that they meet. Products of parts that lie below the last bit of the whole are left out: two
// parts are off by at most 2^-15 of a product, three by 2^-22.
//
// A line of a tile holds 32 such numbers, the first and second numbers of sixteen pairs side by
// side; a pair is two dimensions, or two positions, sixteen apart. Both operands have the same
// pairs.

constexpr int64_t kTileLines = 16;
constexpr int64_t kLineBytes = 64;
constexpr int64_t kTileBytes = kTileLines * kLineBytes;
constexpr int kPartsMax = 3;

// The number of parts that tiles hold of one number of a key or value: one for codes, three for
// f32, two for f16.
template <class Format>
constexpr int kPartsOf = Format::kHasScales                     ? 1
                         : sizeof(typename Format::Number) == 4 ? 3
                                                                : 2;
// Values of a line, that is dimensions or positions that one step multiplies.
template <class Format>
constexpr int64_t kStepOf = Format::kHasScales ? 64 : 32;

constexpr int64_t StepsOf(int64_t count, int64_t step) { return (count + step - 1) / step; }

// Splits each number into kParts bfloat16 parts and writes a line for each part, `stride` bytes
// apart; lane i of a line holds the parts of first[i] and second[i]. The sum of the parts is the
// number if it comes from f16 (two parts) or f32 (three parts). For other numbers kRounds rounds
// the last part, which is cut otherwise. A NaN keeps a part that is NaN, but kRounds loses some.
template <int kParts, bool kRounds>
[[gnu::always_inline]] inline void PutPairs(__m512 first, __m512 second, std::byte* line,
                                            int64_t stride) {
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
#pragma GCC unroll 3
  for (int part = 0; part < kParts; ++part) {
    const bool last = part + 1 == kParts;
    __m512i low = _mm512_castps_si512(first);
    __m512i high = _mm512_castps_si512(second);
    if (!last || kRounds) {
      low = _mm512_add_epi32(low, half);
      high = _mm512_add_epi32(high, half);
    }
    high = _mm512_and_si512(high, upper);
    _mm512_store_si512(line + part * stride, _mm512_or_si512(_mm512_srli_epi32(low, 16), high));
    if (last) break;
    first = _mm512_sub_ps(first, _mm512_castsi512_ps(_mm512_and_si512(low, upper)));
    second = _mm512_sub_ps(second, _mm512_castsi512_ps(high));
  }
}

// Where an operand lies, in bytes: lines of a tile, tiles side by side, parts, and the steps that a
// sum goes through.
struct Operand {
  const std::byte* first;
  int64_t line;
  int64_t tile;
  int64_t part;
  int64_t step;
};

// Tiles by number: sums of two by two, the left operand's two and one of the right one; few, for
// the reason that bf16_panel.inl gives.
constexpr int kSums = 0, kLeft = 4, kRight = 6;

template <int kRows>
[[gnu::always_inline]] inline void LoadLeft(const Operand& left, const std::byte* at) {
  Tiles::Load<kLeft>(at, left.line);
  if constexpr (kRows > 1) Tiles::Load<kLeft + 1>(at + left.tile, left.line);
}

// Past the cache, where the left operand stays.
[[gnu::always_inline]] inline void LoadRight(const Operand& right, const std::byte* at) {
  Tiles::LoadPastCache<kRight>(at, right.line);
}

// multiply.operator()<sums, left>() for the rows that are loaded and column kCol.
template <int kRows, int kCol, class Multiply>
[[gnu::always_inline]] inline void ForRows(const Multiply& multiply) {
  multiply.template operator()<kSums + kCol, kLeft>();
  if constexpr (kRows > 1) multiply.template operator()<kSums + 2 + kCol, kLeft + 1>();
}

// One step of sums of bfloat16 parts.
template <int kParts>
struct PartProducts {
  static constexpr int kColsAtOnce = 1;

  template <int kRows, int kCols>
  [[gnu::always_inline]] static void Step(const Operand& left, const std::byte* left_at,
                                          const Operand& right, const std::byte* right_at) {
    static_assert(kCols == 1);
    const auto multiply = [] {
      ForRows<kRows, 0>([]<int S, int L>() __attribute__((always_inline)) {
        Tiles::MultiplyBf16<S, L, kRight>();
      });
    };
    const auto load_left = [&](int part) { LoadLeft<kRows>(left, left_at + part * left.part); };
    const auto load_right = [&](int part) { LoadRight(right, right_at + part * right.part); };
    load_right(0);
    if constexpr (kParts > 2) {
      load_left(2);
      multiply();
    }
    load_left(1);
    multiply();
    load_left(0);
    multiply();
    load_right(1);
    multiply();
    if constexpr (kParts > 2) {
      load_left(1);
      multiply();
      load_right(2);
      load_left(0);
      multiply();
    }
  }
};

// One step of sums of bytes.
template <bool kLeftSigned>
struct ByteProducts {
  static constexpr int kColsAtOnce = 2;

  template <int kRows, int kCols>
  [[gnu::always_inline]] static void Step(const Operand& left, const std::byte* left_at,
                                          const Operand& right, const std::byte* right_at) {
    LoadLeft<kRows>(left, left_at);
    Column<kRows, 0>(right, right_at);
    if constexpr (kCols > 1) Column<kRows, 1>(right, right_at + right.tile);
  }

 private:
  template <int kRows, int kCol>
  [[gnu::always_inline]] static void Column(const Operand& right, const std::byte* at) {
    LoadRight(right, at);
    ForRows<kRows, kCol>([]<int S, int L>() __attribute__((always_inline)) {
      if constexpr (kLeftSigned) {
        Tiles::MultiplySigned<S, L, kRight>();
      } else {
        Tiles::MultiplyUnsigned<S, L, kRight>();
      }
    });
  }
};

// Sums of kRows by kCols tiles over all steps, stored as rows `stride` bytes apart.
template <class Products, int kRows, int kCols>
[[gnu::noinline]] void MultiplyTiles(const Operand& left, const Operand& right, int64_t steps,
                                     std::byte* sums, int64_t stride) {
  // A zeroing instruction would stop the pipeline.
  alignas(kLineBytes) static constexpr std::byte kZeros[kLineBytes] = {};
  Tiles::Load<kSums>(kZeros, 0);
  if constexpr (kCols > 1) Tiles::Load<kSums + 1>(kZeros, 0);
  if constexpr (kRows > 1) Tiles::Load<kSums + 2>(kZeros, 0);
  if constexpr (kRows > 1 && kCols > 1) Tiles::Load<kSums + 3>(kZeros, 0);
  const std::byte* left_at = left.first;
  const std::byte* right_at = right.first;
  for (int64_t step = 0; step < steps; ++step) {
    Products::template Step<kRows, kCols>(left, left_at, right, right_at);
    left_at += left.step;
    right_at += right.step;
  }
  std::byte* below = sums + kTileLines * stride;
  Tiles::Store<kSums>(sums, stride);
  if constexpr (kCols > 1) Tiles::Store<kSums + 1>(sums + kLineBytes, stride);
  if constexpr (kRows > 1) Tiles::Store<kSums + 2>(below, stride);
  if constexpr (kRows > 1 && kCols > 1) Tiles::Store<kSums + 3>(below + kLineBytes, stride);
}

template <class Products, int kRows>
void MultiplyRowOfTiles(const Operand& left, Operand right, int64_t cols, int64_t steps,
                        std::byte* sums, int64_t stride) {
  constexpr int kCols = Products::kColsAtOnce;
  int64_t c = 0;
  for (; c + kCols <= cols; c += kCols) {
    MultiplyTiles<Products, kRows, kCols>(left, right, steps, sums, stride);
    right.first += kCols * right.tile;
    sums += kCols * kLineBytes;
  }
  if (c < cols) MultiplyTiles<Products, kRows, 1>(left, right, steps, sums, stride);
}

// Multiplies `rows` by `cols` tiles and stores their sums.
template <class Products>
void MultiplyGrid(Operand left, int64_t rows, const Operand& right, int64_t cols, int64_t steps,
                  std::byte* sums, int64_t stride) {
  int64_t r = 0;
  for (; r + 2 <= rows; r += 2) {
    MultiplyRowOfTiles<Products, 2>(left, right, cols, steps, sums, stride);
    left.first += 2 * left.tile;
    sums += 2 * kTileLines * stride;
  }
  if (r < rows) MultiplyRowOfTiles<Products, 1>(left, right, cols, steps, sums, stride);
}

inline TileConfig ConfigOfAttention() {
  TileConfig config;
  for (int tile = 0; tile <= kRight; ++tile) {
    config.rows[tile] = kTileLines;
    config.row_bytes[tile] = kLineBytes;
  }
  return config;
}
