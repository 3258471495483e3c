// Panels and strips packed from rows of blocks of 32 values. An instruction set includes this file
// after pack_rows.inl.
//
// The eight blocks of 256 columns are read from end to end, 16 bytes of each row at a time,
// whatever they belong to: scales come with the codes, and where these columns begin at a multiple
// of 16 bytes, no load crosses a cache line.

// Some bytes of kPanelLanes rows, four in a lane. They are loaded in ascending order.
template <int kBytes>
class BytesOfRows {
 public:
  explicit BytesOfRows(RowBlocks rows) : rows_(rows) {}

  // Loads [kBegin, kEnd), where all before kBegin have been loaded.
  template <int kBegin, int kEnd>
  [[gnu::always_inline]] void Load() {
    LoadGroups<(kBegin + 15) / 16, (kEnd + 15) / 16>();
  }

  // Lane r: bytes kAt to kAt + 3 of row r.
  template <int kAt>
  [[gnu::always_inline]] RowInts Four() const {
    constexpr int kRest = kAt % 4;
    if constexpr (kRest == 0) {
      return Aligned<kAt>();
    } else {
      return FoursFrom<kRest>(Aligned<kAt - kRest>(), Aligned<kAt - kRest + 4>());
    }
  }

  // Lane r: byte kAt of row r, and above it anything.
  template <int kAt>
  [[gnu::always_inline]] RowInts From() const {
    const RowInts four = Aligned<kAt / 4 * 4>();
    return kAt % 4 == 0 ? four : ShiftDown(four, kAt % 4 * 8);
  }

  // The half at kAt of each row.
  template <int kAt>
  [[gnu::always_inline]] RowFloats Halves() const {
    static_assert(kAt % 2 == 0);
    return LowerHalves(From<kAt>());
  }

 private:
  static constexpr int kGroups = (kBytes + 15) / 16;
  static_assert(kBytes % 4 == 0 && kBytes >= 16);

  // Where a group's bytes begin: the last 16 where there are not as many left.
  static constexpr int Begin(int group) { return std::min(16 * group, kBytes - 16); }

  template <int kFirst, int kLast>
  [[gnu::always_inline]] void LoadGroups() {
    if constexpr (kFirst < kLast) {
      LoadFours(rows_, Begin(kFirst), fours_[kFirst]);
      LoadGroups<kFirst + 1, kLast>();
    }
  }
  template <int kAt>
  [[gnu::always_inline]] RowInts Aligned() const {
    return fours_[kAt / 16][(kAt - Begin(kAt / 16)) / 4];
  }

  RowBlocks rows_;
  RowInts fours_[kGroups][4];
};

// A format's rows, of which it says
//
//   Format, Codes     the struct in quant/; a RowCodes
//   kLow, kLowBits    at which byte of a block the low bits of codes are; 4 or 8 of them
//   kHigh             at which byte the word is that has a fifth bit of each, 0: nowhere
//   ScalesOf<kBegin>(bytes)   RowScales of the block that begins there
//   CodesOf(bits)     codes, where these are not the bits
template <class Rows>
struct SmallBlockRows {
  static constexpr int kLowBits = 4;
  static constexpr int kHigh = 0;
  static RowInts CodesOf(RowInts bits) { return bits; }

  // kPanelLanes rows of a block of 256 columns.
  template <class Lines>
  static void PackTo(RowBlocks rows, const Lines& lines) {
    PackBlocks(rows, lines, std::make_integer_sequence<int, 8>());
  }

 private:
  template <class Lines, int... kPairs>
  [[gnu::always_inline]] static void PackBlocks(RowBlocks rows, const Lines& lines,
                                                std::integer_sequence<int, kPairs...> /*pairs*/) {
    BytesOfRows<8 * int{sizeof(typename Rows::Format::Block)}> bytes(rows);
    (PackPair<kPairs>(bytes, lines), ...);
  }

  template <int kPair, class Bytes, class Lines>
  [[gnu::always_inline]] static void PackPair(Bytes& bytes, const Lines& lines) {
    constexpr int kSize = sizeof(typename Rows::Format::Block);
    constexpr int kBegin = kPair * kSize;
    bytes.template Load<kBegin, kBegin + kSize>();
    const RowScales scales = Rows::template ScalesOf<kBegin>(bytes);
    PackHalf<kBegin, 0>(bytes, lines, lines.BeginGroup(kPair, 0, scales));
    PackHalf<kBegin, 1>(bytes, lines, lines.BeginGroup(kPair, 1, scales));
  }

  template <int kBegin, int kHalf, class Bytes, class Lines>
  [[gnu::always_inline]] static void PackHalf(const Bytes& bytes, const Lines& lines,
                                              const typename Lines::Group& to) {
    PutFour<kBegin, 4 * kHalf>(bytes, lines, to);
    PutFour<kBegin, 4 * kHalf + 1>(bytes, lines, to);
    PutFour<kBegin, 4 * kHalf + 2>(bytes, lines, to);
    PutFour<kBegin, 4 * kHalf + 3>(bytes, lines, to);
  }

  // Columns 4 * kLine to 4 * kLine + 3 of a block. The lower halves of bytes are the first 16.
  template <int kBegin, int kLine, class Bytes, class Lines>
  [[gnu::always_inline]] static void PutFour(const Bytes& bytes, const Lines& lines,
                                             const typename Lines::Group& to) {
    constexpr int kFours = Rows::kLowBits == 8 ? 8 : 4;
    RowInts bits = bytes.template Four<kBegin + Rows::kLow + 4 * (kLine % kFours)>();
    if constexpr (kLine >= kFours) bits = ShiftDown(bits, 4);
    if constexpr (kFours == 4) bits = AndBytes(bits, 0x0f);
    if constexpr (Rows::kHigh > 0) {
      const RowInts high = bytes.template Four<kBegin + Rows::kHigh>();
      bits = AddFourBits(bits, ShiftDown(high, 4 * kLine));
    }
    lines.Put(to, kLine, Rows::CodesOf(bits));
  }
};

// The scales of blocks that begin with a half.
struct HalfScales {
  template <int kBegin, class Bytes>
  [[gnu::always_inline]] static RowScales ScalesOf(const Bytes& bytes) {
    return {bytes.template Halves<kBegin>()};
  }
};

// The scales and minima of blocks that begin with the half of a scale and the half of a minimum.
struct HalfScalesAndMinima {
  template <int kBegin, class Bytes>
  [[gnu::always_inline]] static RowScales ScalesOf(const Bytes& bytes) {
    return {bytes.template Halves<kBegin>(), Negate(bytes.template Halves<kBegin + 2>())};
  }
};
