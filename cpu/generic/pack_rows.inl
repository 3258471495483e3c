// Panels and strips packed straight from the bytes of rows, for formats whose codes lie in planes
// of bits (BitPlane of quant/block.h). An instruction set includes this file after its panels and
// after it has defined, for vectors with a lane of 32 bits for each of kPanelLanes rows,
//
//   RowInts, RowFloats            such vectors
//   RowScales, RowCodes           what lines take of scales, and must know of codes
//   kSignedBias, StoreSigned(codes)   how codes of eight bits with a sign are stored
//   LoadFours(rows, at, out[4])   lane r of out[k]: bytes 4k to 4k + 3 from byte `at` of row r on
//   LoadWords(rows, at)           lane r: bytes `at` to `at` + 3 of row r
//   FoursFrom<kBytes>(fours, next)   four bytes from byte kBytes of `fours` on, 1 to 3, the last of
//                                 them from `next`
//   ShiftDown(v, bits), ShiftUp(v, bits)   lanes of 32 bits, filled with zeros
//   MoveUp(v, bits)               to the left, or to the right by -bits; what comes into a lane
//                                 from beyond its ends is anything
//   AndBytes(v, mask), And(v, mask), OrMasked(a, b, mask)   with a byte; a | b & mask
//   SignExtend(v, bits)           the lower 32 - bits bits of lanes as numbers with a sign
//   Less(v, number), Times(ints, floats), Negate(floats)
//   LowerHalves(words)            the halves in lanes' lower 16 bits as floats
//   AddFourBits(codes, words)     codes + 16 where the lowest four bits of the words are set
//   LookUpRows(table, indices)    of 16 bytes
//   ScalesOfExponents(exponents)  2^(exponent - 128)
//
// Rows are put to Lines, those of a panel or of a strip:
//
//   BeginGroup(pair, half, scales) -> Group   group `half` of 16 columns of pair `pair`
//   Put(group, line, codes)       four columns of all rows, a row a lane; line 0 to 7 of the pair

inline RowFloats UpperHalves(RowInts words) { return LowerHalves(ShiftDown(words, 16)); }

// The small numbers that a block of 256 columns has for its scales, of all rows: number i of row r
// is byte i % 4 of lane r of fours[i / 4].
struct RowNumbers {
  RowInts fours[4];

  RowInts Unsigned(int i) const { return And(ShiftDown(fours[i / 4], i % 4 * 8), 255); }
  RowInts Signed(int i) const { return SignExtend(ShiftUp(fours[i / 4], 24 - i % 4 * 8), 24); }
};

// The planes of a format without high bits.
struct NoPlane {};

template <class Plane>
struct PlaneShape {
  static constexpr int kWidth = std::bit_width(static_cast<uint32_t>(Plane::kMask));
  static constexpr int kFields = 8 / kWidth;  // of a byte
  // From a group of 16 columns to the next whose fields are in the same bytes.
  static constexpr int kRunGroups = Plane::kRunFields / kFields / 16;
};

// The planes of a format's rows.
template <class Rows>
struct RowPlanes {
  static constexpr bool kHasHigh = !std::is_same_v<typename Rows::High, NoPlane>;
  using Outer = std::conditional_t<kHasHigh, typename Rows::High, typename Rows::Low>;
  static constexpr int kFields = PlaneShape<Outer>::kFields;
  static constexpr int kRun = PlaneShape<Outer>::kRunGroups;
  static_assert(Rows::Format::kBlockValues == 256);
};

// A format's rows, of which it says
//
//   Format, Codes  the struct in quant/; a RowCodes
//   Low, kLow      the plane of the low bits of codes and at which byte of a block it begins
//   High, kHigh    the same of the bits above these, if there are any
//   Scales         Scales(rows), Of(pair, half) -> RowScales
//   CodesOf(bits)  codes, where these are not the bits
template <class Rows>
struct PackedRows {
  using High = NoPlane;
  static constexpr int64_t kHigh = 0;
  static RowInts CodesOf(RowInts bits) { return bits; }

  // kPanelLanes rows of a block of 256 columns.
  template <class Lines>
  static void PackTo(RowBlocks rows, const Lines& lines) {
    const typename Rows::Scales scales(rows);
    constexpr int kChunks = 16 / RowPlanes<Rows>::kFields;
    PackChunks(rows, scales, lines, std::make_integer_sequence<int, kChunks>());
  }

 private:
  // Each chunk: 16 bytes of the outer plane, a field of kFields groups. All numbers of groups are
  // constants, so that places and shifts are.
  template <class Scales, class Lines, int... kChunks>
  [[gnu::always_inline]] static void PackChunks(RowBlocks rows, const Scales& scales,
                                                const Lines& lines,
                                                std::integer_sequence<int, kChunks...> /*chunks*/) {
    (PackChunk<kChunks>(rows, scales, lines), ...);
  }
  template <int kChunk, class Scales, class Lines>
  [[gnu::always_inline]] static void PackChunk(RowBlocks rows, const Scales& scales,
                                               const Lines& lines) {
    constexpr int kFields = RowPlanes<Rows>::kFields, kRun = RowPlanes<Rows>::kRun;
    RowInts high[4];
    if constexpr (RowPlanes<Rows>::kHasHigh) LoadFours(rows, Rows::kHigh + 16 * kChunk, high);
    PackGroups<kChunk / kRun * kFields * kRun + kChunk % kRun, kFields>(rows, high, scales, lines);
  }

  // kCount groups from kGroup on, RowPlanes::kRun apart.
  template <int kGroup, int kCount, class Scales, class Lines>
  [[gnu::always_inline]] static void PackGroups(RowBlocks rows, const RowInts (&high)[4],
                                                const Scales& scales, const Lines& lines) {
    if constexpr (kCount > 0) {
      if constexpr (Rows::Low::Shift(16 * kGroup) == 0) {
        PackSameBytes<kGroup>(rows, high, scales, lines);
      }
      PackGroups<kGroup + RowPlanes<Rows>::kRun, kCount - 1>(rows, high, scales, lines);
    }
  }

  // The groups whose low bits are in the same 16 bytes as those of kFirst.
  template <int kFirst, class Scales, class Lines>
  [[gnu::always_inline]] static void PackSameBytes(RowBlocks rows, const RowInts (&high)[4],
                                                   const Scales& scales, const Lines& lines) {
    using Low = typename Rows::Low;
    using Shape = PlaneShape<Low>;
    RowInts low[4];
    LoadFours(rows, Rows::kLow + Low::Byte(16 * kFirst), low);
#pragma GCC unroll 4
    for (int f = 0; f < Shape::kFields; ++f) {
      const int group = kFirst + f * Shape::kRunGroups;
      const auto to = lines.BeginGroup(group / 2, group % 2, scales.Of(group / 2, group % 2));
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        RowInts bits = low[k];
        if (f > 0) bits = ShiftDown(bits, Shape::kWidth * f);
        if constexpr (Shape::kFields > 1) bits = AndBytes(bits, Low::kMask);
        if constexpr (RowPlanes<Rows>::kHasHigh) {
          bits = AddHigh(bits, high[k], group);
        }
        lines.Put(to, 4 * (group % 2) + k, Rows::CodesOf(bits));
      }
    }
  }

  // The high bits of a group above its low ones.
  [[gnu::always_inline]] static RowInts AddHigh(RowInts low, RowInts high, int group) {
    using Plane = typename Rows::High;
    constexpr int kLowBits = PlaneShape<typename Rows::Low>::kWidth;
    const RowInts moved = MoveUp(high, kLowBits - Plane::Shift(16 * group));
    return OrMasked(low, moved, Plane::kMask << kLowBits);
  }
};
