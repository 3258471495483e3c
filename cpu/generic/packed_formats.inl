// The formats whose rows are packed from their bytes, quant/formats/q4_0.h and so on. An
// instruction set includes this file after pack_small_blocks.inl.

// ---- Blocks of 32 values ------------------------------------------------------------------------

struct RowsOfQ4_0 : SmallBlockRows<RowsOfQ4_0>, HalfScales {
  using Format = quant::Q4_0;
  struct Codes : RowCodes {
    static constexpr int kBias = 8;
    static constexpr bool kShortScales = true;
  };
  static constexpr int kLow = offsetof(Format::Block, codes);
};

struct RowsOfQ4_1 : SmallBlockRows<RowsOfQ4_1>, HalfScalesAndMinima {
  using Format = quant::Q4_1;
  struct Codes : RowCodes {
    static constexpr bool kHasOffsets = true;
  };
  static constexpr int kLow = offsetof(Format::Block, codes);
};

struct RowsOfQ5_0 : SmallBlockRows<RowsOfQ5_0>, HalfScales {
  using Format = quant::Q5_0;
  struct Codes : RowCodes {
    static constexpr int kBias = 16;
    static constexpr bool kShortScales = true;
  };
  static constexpr int kLow = offsetof(Format::Block, low);
  static constexpr int kHigh = offsetof(Format::Block, high);
};

struct RowsOfQ5_1 : SmallBlockRows<RowsOfQ5_1>, HalfScalesAndMinima {
  using Format = quant::Q5_1;
  struct Codes : RowCodes {
    static constexpr bool kHasOffsets = true;
  };
  static constexpr int kLow = offsetof(Format::Block, low);
  static constexpr int kHigh = offsetof(Format::Block, high);
};

// Codes of eight bits with a sign.
struct SignedRowCodes : RowCodes {
  static constexpr int kBits = 8;
  static constexpr int kBias = kSignedBias;
};

struct RowsOfQ8_0 : SmallBlockRows<RowsOfQ8_0>, HalfScales {
  using Format = quant::Q8_0;
  struct Codes : SignedRowCodes {
    static constexpr bool kShortScales = true;
  };
  static constexpr int kLowBits = 8;
  static constexpr int kLow = offsetof(Format::Block, codes);
  static RowInts CodesOf(RowInts bits) { return StoreSigned(bits); }
};

// A table of 16 levels + kBias.
template <int kBias>
struct RowLevels {
  alignas(16) uint8_t bytes[16];
  constexpr explicit RowLevels(const int8_t* levels) : bytes{} {
    for (int i = 0; i < 16; ++i) bytes[i] = static_cast<uint8_t>(levels[i] + kBias);
  }
};
constexpr RowLevels<kSignedBias> kIq4RowLevels(quant::kIq4Levels);
constexpr int kE2M1Bias = 16;
constexpr RowLevels<kE2M1Bias> kE2M1RowLevels(quant::kE2M1Levels);

struct RowsOfIQ4_NL : SmallBlockRows<RowsOfIQ4_NL>, HalfScales {
  using Format = quant::IQ4_NL;
  struct Codes : SignedRowCodes {
    static constexpr bool kShortScales = true;
  };
  static constexpr int kLow = offsetof(Format::Block, codes);
  [[gnu::always_inline]] static RowInts CodesOf(RowInts bits) {
    return LookUpRows(kIq4RowLevels.bytes, bits);
  }
};

struct RowsOfMXFP4 : SmallBlockRows<RowsOfMXFP4> {
  using Format = quant::MXFP4;
  struct Codes : RowCodes {
    static constexpr int kBias = kE2M1Bias;
  };
  static constexpr int kLow = offsetof(Format::Block, codes);
  template <int kBegin, class Bytes>
  [[gnu::always_inline]] static RowScales ScalesOf(const Bytes& bytes) {
    return {ScalesOfExponents(And(bytes.template From<kBegin>(), 255))};
  }
  [[gnu::always_inline]] static RowInts CodesOf(RowInts bits) {
    return LookUpRows(kE2M1RowLevels.bytes, bits);
  }
};

// ---- Blocks of 256 values -----------------------------------------------------------------------

struct RowsOfQ2_K : PackedRows<RowsOfQ2_K> {
  using Format = quant::Q2_K;
  struct Codes : RowCodes {
    static constexpr bool kHasOffsets = true;
    static constexpr int kScaleValues = 16;
  };
  using Low = Format::Codes;
  static constexpr int64_t kLow = offsetof(Format::Block, codes);
  struct Scales {
    RowFloats d, dmin;
    RowNumbers numbers, minima;

    explicit Scales(RowBlocks rows) {
      static_assert(offsetof(Format::Block, dmin) == offsetof(Format::Block, d) + 2);
      const RowInts factors = LoadWords(rows, offsetof(Format::Block, d));
      d = LowerHalves(factors);
      dmin = UpperHalves(factors);
      RowInts bytes[4];
      LoadFours(rows, offsetof(Format::Block, scales), bytes);
      for (int i = 0; i < 4; ++i) {
        numbers.fours[i] = AndBytes(bytes[i], 15);
        minima.fours[i] = AndBytes(ShiftDown(bytes[i], 4), 15);
      }
    }
    RowScales Of(int pair, int half) const {
      const int group = 2 * pair + half;
      return {Times(numbers.Unsigned(group), d), Times(minima.Unsigned(group), dmin)};
    }
  };
};

struct RowsOfQ3_K : PackedRows<RowsOfQ3_K> {
  using Format = quant::Q3_K;
  struct Codes : RowCodes {
    static constexpr int kBias = 4;
    static constexpr bool kShortScales = true;
    static constexpr int kScaleValues = 16;
  };
  using High = Format::High;
  using Low = Format::Low;
  static constexpr int64_t kHigh = offsetof(Format::Block, high);
  static constexpr int64_t kLow = offsetof(Format::Block, low);
  struct Scales {
    RowFloats d;
    RowNumbers numbers;  // and 32

    explicit Scales(RowBlocks rows) {
      constexpr int64_t kLast = sizeof(Format::Block) - 16;  // all scales and d
      static_assert(offsetof(Format::Block, scales_low) == kLast + 2 &&
                    offsetof(Format::Block, scales_high) == kLast + 10 &&
                    offsetof(Format::Block, d) == kLast + 14);
      RowInts words[4];
      LoadFours(rows, kLast, words);
      d = UpperHalves(words[3]);
      const RowInts low[2] = {FoursFrom<2>(words[0], words[1]), FoursFrom<2>(words[1], words[2])};
      const RowInts high = FoursFrom<2>(words[2], words[3]);
      for (int i = 0; i < 4; ++i) {
        const RowInts four = i < 2 ? low[i] : ShiftDown(low[i - 2], 4);
        numbers.fours[i] = OrMasked(AndBytes(four, 15), MoveUp(high, 4 - 2 * i), 0x30);
      }
    }
    RowScales Of(int pair, int half) const {
      return {Times(Less(numbers.Unsigned(2 * pair + half), 32), d)};
    }
  };
};

// quant/formats/scale_min_pairs.h: d and dmin, next to each other, and then scales and minima of
// pairs.
template <class Block>
struct PairScales {
  RowFloats d, dmin;
  RowNumbers scales, minima;

  explicit PairScales(RowBlocks rows) {
    static_assert(offsetof(Block, d) == 0 && offsetof(Block, dmin) == 2 &&
                  offsetof(Block, pairs) == 4);
    RowInts words[4];
    LoadFours(rows, 0, words);
    d = LowerHalves(words[0]);
    dmin = UpperHalves(words[0]);
    const RowInts upper = ShiftDown(words[3], 4);
    scales.fours[0] = AndBytes(words[1], 0x3f);
    scales.fours[1] = OrMasked(AndBytes(words[3], 15), ShiftDown(words[1], 2), 0x30);
    minima.fours[0] = AndBytes(words[2], 0x3f);
    minima.fours[1] = OrMasked(AndBytes(upper, 15), ShiftDown(words[2], 2), 0x30);
  }
  RowScales Of(int pair, int /*half*/) const {
    return {Times(scales.Unsigned(pair), d), Times(minima.Unsigned(pair), dmin)};
  }
};

struct RowsOfQ4_K : PackedRows<RowsOfQ4_K> {
  using Format = quant::Q4_K;
  struct Codes : RowCodes {
    static constexpr bool kHasOffsets = true;
  };
  using Low = Format::Codes;
  static constexpr int64_t kLow = offsetof(Format::Block, codes);
  using Scales = PairScales<Format::Block>;
};

struct RowsOfQ5_K : PackedRows<RowsOfQ5_K> {
  using Format = quant::Q5_K;
  struct Codes : RowCodes {
    static constexpr bool kHasOffsets = true;
  };
  using High = Format::High;
  using Low = Format::Low;
  static constexpr int64_t kHigh = offsetof(Format::Block, high);
  static constexpr int64_t kLow = offsetof(Format::Block, low);
  using Scales = PairScales<Format::Block>;
};

struct RowsOfQ6_K : PackedRows<RowsOfQ6_K> {
  using Format = quant::Q6_K;
  struct Codes : RowCodes {
    static constexpr int kBias = 32;
    static constexpr bool kShortScales = true;
    static constexpr int kScaleValues = 16;
  };
  using High = Format::High;
  using Low = Format::Low;
  static constexpr int64_t kHigh = offsetof(Format::Block, high);
  static constexpr int64_t kLow = offsetof(Format::Block, low);
  struct Scales {
    RowFloats d;
    RowNumbers numbers;

    explicit Scales(RowBlocks rows) {
      constexpr int64_t kLast = sizeof(Format::Block) - 4;
      static_assert(offsetof(Format::Block, d) == kLast + 2);
      d = UpperHalves(LoadWords(rows, kLast));
      LoadFours(rows, offsetof(Format::Block, scales), numbers.fours);
    }
    RowScales Of(int pair, int half) const { return {Times(numbers.Signed(2 * pair + half), d)}; }
  };
};

struct RowsOfIQ4_XS : PackedRows<RowsOfIQ4_XS> {
  using Format = quant::IQ4_XS;
  using Codes = SignedRowCodes;
  using Low = Format::Codes;
  static constexpr int64_t kLow = offsetof(Format::Block, codes);
  struct Scales {
    RowFloats d;
    RowInts high, low;  // two and four bits of each number

    explicit Scales(RowBlocks rows) {
      static_assert(offsetof(Format::Block, d) == 0 && offsetof(Format::Block, scales_high) == 2 &&
                    offsetof(Format::Block, scales_low) == 4);
      const RowInts first = LoadWords(rows, 0);
      d = LowerHalves(first);
      high = ShiftDown(first, 16);
      low = LoadWords(rows, 4);
    }
    RowScales Of(int pair, int /*half*/) const {
      const RowInts four = And(ShiftDown(low, 4 * pair), 15);
      const RowInts number = OrMasked(four, MoveUp(high, 4 - 2 * pair), 0x30);
      return {Times(Less(And(number, 0x3f), 32), d)};
    }
  };
  [[gnu::always_inline]] static RowInts CodesOf(RowInts bits) {
    return RowsOfIQ4_NL::CodesOf(bits);
  }
};
