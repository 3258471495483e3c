// The inner loops of products of quantized weights with int8 activations, shared by the vector
// instruction sets. An instruction set includes row_reader.inl, this file and matmul_int8.inl, in
// this order, in its namespace and target region, after it has defined
//
//   WeightBlock       256 weights of one row: codes, and scales and offsets per lane
//   ActivationBlock   256 activations of one token in the matching order
//   Accumulator       a vector of floats, the running sum of one (row, token) pair
//   ScaleBlock(block, factor)   multiplies the scales of a block without offsets
//   kRowsAtOnce       rows of few tokens whose blocks lie in registers together
//   kStreams          parts of the rows that one token reads side by side
//   kPairTokens       tokens that are multiplied with two rows together; 0: rows go one by one
//   kCountTokens      whether three and five to 32 tokens are multiplied one by one with a block as
//                     it is unpacked
//   kHeldTokens       tokens whose sums stay in registers while rows are unpacked and multiplied
//   Zero(), SumEight(accumulators, stride, floats)
//   MultiplyAdd<Codes, tokens>(weights, activations, accumulators)
//   CodesFor<Unpacker, tokens>   how codes are multiplied with so many tokens; where it has kUnit,
//                     so many blocks of a row, 1 or 2, a unit, are multiplied together; at the end
//                     of a row zeros stand in for what is missing
//   ActivationCodes<Codes>   what the order of activations depends on
//   PrepareBlock<ActivationCodes>(activation row, cols, block index)
//   ProductCodes<Codes>   what MultiplyAdd must know of Codes, so that formats which differ in
//                     nothing else share its code
//   UnpackerFor<Unpacker, tokens>   how weights are unpacked for so many tokens: by the format's
//                     unpacker, or by another one whose blocks give the same bits
//
// and for every format an unpacker: Codes (the properties of its codes that the functions above
// need to know), kBytes of 256 values (0: what the traits say), Unpack(bytes, traits) ->
// WeightBlock. Where two blocks take less time together than one after the other it also has
// UnpackTwo(bytes, bytes, out). One of a format whose rows begin with a factor has kHasRowFactor.
//
// Where there are units of two blocks it also defines
//
//   PrepareUnit<ActivationCodes>(activation row, cols, index of the first block, out, blocks from
//                     that to the second)
//   JoinUnit<Codes>(blocks, out)   arranges the blocks of a unit as they are multiplied; `out` may
//                     be `blocks`
//   MultiplyAddUnit<Codes, tokens>(blocks, activations, stride, accumulators), where activations of
//                     the unit's blocks lie `stride` apart
//   MultiplyAddPairOfUnits, the same of two rows
//   UnitDots<Codes, tokens>   where Codes has kBlockByBlock: takes the blocks of a unit one after
//                     the other, so that one token keeps the codes of one of them in registers
//
// Where kPairTokens is not 0 it also defines
//
//   MultiplyAddPair<Codes, tokens>(weights, weights of the next row, activations, accumulators of
//                                  the first row, of the second), at most kPairTokens
//
// and, where instructions multiply two rows with two tokens,
//
//   PairTokens(activations, tokens)   rearranges the blocks of an even number of tokens
//
// One accumulator per (row, token) pair, one MultiplyAdd per block or unit, ascending, SumEight:
// that fixes the bits, whatever rows and tokens are multiplied together.
//
// Only two functions are compiled for every format, because each copy of an unpacker takes long to
// compile: one unpacks blocks into memory (where there are units, another one for these), the other
// multiplies one token with blocks that stay in registers. What several tokens do with unpacked
// blocks is compiled for each kind of codes.

// Tokens of a tile, whose sums for a row are in registers.
constexpr int kTileTokens = 8;
// How far ahead of its use a weight of one of several streams is asked for, at least, and by how
// many blocks of `bytes` at least; measured on streams from memory.
constexpr int64_t kStreamPrefetchBytes = 2304, kStreamPrefetchBlocks = 16;
inline int64_t StreamPrefetchBytes(int64_t bytes) {
  return std::max(kStreamPrefetchBytes, kStreamPrefetchBlocks * bytes);
}
// On AMD's CPUs several tokens, between whose products weights are read in bursts, also ask for
// them in the second level from further on, where one token asks for them in the first. On Zen 5
// whole models are 0.97 to 1.11 times as fast with it, most of them faster; on Emerald Rapids
// products from memory are 0.95 to 1.
constexpr int64_t kFarPrefetches = 4;
inline bool PrefetchesFar(PrefetchTo to) { return to == PrefetchTo::kFirstLevel && IsAmd(); }
// Where streams ask for weights: a first-level cache of 48 KiB has room for them (one token is 1.05
// to 1.25 times as fast on Zen 5, 0.99 to 1.13 on Emerald Rapids), one of 32 has not (the second
// level was faster on Zen 4).
inline PrefetchTo StreamPrefetchTo() {
  return FirstLevelDataBytes() >= 48 * 1024 ? PrefetchTo::kFirstLevel : PrefetchTo::kSecondLevel;
}

template <class Block>
concept Pairable = requires(Block* activations) { PairTokens(activations, 2); };

// Interleaves a block of `tokens` tokens, one or an even number, by pairs where the instruction set
// has PairTokens.
template <class Block>
inline void PairIfPairable(Block* activations, int64_t tokens) {
  if constexpr (Pairable<Block>) PairTokens(activations, tokens);
}

// Rows that are multiplied together with kTokens tokens.
template <int kTokens>
constexpr int RowsAtOnce() {
  if (kTokens == 1) return kStreams;
  return kTokens < kTileTokens || kPairTokens > 0 ? kRowsAtOnce : 1;
}

// Tokens of `tokens` whose sums with some rows are in registers together.
constexpr int TokensAtOnce(int tokens) {
  return kPairTokens > 0 ? std::min(tokens, kPairTokens) : tokens;
}

// Tokens whose sums stay in registers while units of `unit` blocks are unpacked and multiplied.
constexpr int HeldTokens(int unit) { return unit == 1 ? kHeldTokens : 1; }

// Tokens that are multiplied at once with rows that are unpacked meanwhile: where their sums are in
// registers, the dots of one token leave room for what unpacks rows.
constexpr int TokensAtOnceInStreams(int tokens, int unit) {
  return tokens <= HeldTokens(unit) && !Pairable<ActivationBlock> ? 1 : TokensAtOnce(tokens);
}

// Whether a tile of kTokens may have fewer tokens, which are counted while the program runs: tiles
// of 3 and of 5 and more tokens. Their sums stay in memory, and a row's weights in registers.
template <int kTokens>
constexpr bool kCounted = kCountTokens && kTokens == kTileTokens;

// Whether a tile of kTokens has any number of them, so that the room for them is known when the
// program runs.
template <int kTokens>
constexpr bool kAnyRoom = kCounted<kTokens> || kTokens > kTileTokens;

// Tokens of a tile that multiply blocks as they are unpacked. Where sums stay in memory no
// registers limit the tokens, but the sums and the activations must stay in the first-level cache.
// One or two tokens more than three tiles are included, because they would wait alone for rows
// unpacked in memory.
constexpr int64_t kStreamedTokens = kCountTokens                  ? 4 * kTileTokens
                                    : HeldTokens(1) < kTileTokens ? 3 * kTileTokens + 2
                                                                  : kTileTokens;
// The number of streamed tokens on this CPU: where vectors of sums have 64 bytes, more than 16
// tokens fill 32 KiB.
inline int64_t StreamedTokens() {
  const bool fills = sizeof(Accumulator) == 64 && FirstLevelDataBytes() < 48 * 1024;
  return fills ? std::min<int64_t>(kStreamedTokens, 2 * kTileTokens) : kStreamedTokens;
}

// sums[t] += a unit of a row . token t; the activations of a unit's blocks lie `stride` apart.
template <class Codes, int kTokens>
[[gnu::always_inline]] inline void MultiplyUnit(const WeightBlock* weights,
                                                const ActivationBlock* activations,
                                                [[maybe_unused]] int64_t stride,
                                                Accumulator* sums) {
  if constexpr (UnitBlocks<Codes>() == 1) {
    MultiplyAdd<Codes, kTokens>(*weights, activations, sums);
  } else {
    MultiplyAddUnit<Codes, kTokens>(weights, activations, stride, sums);
  }
}

// sums_a[t] += a unit of row a . token t, and sums_b[t] += a unit of row b . token t, where
// kPairTokens is not 0.
template <class Codes, int kTokens>
[[gnu::always_inline]] inline void MultiplyPairOfUnits(const WeightBlock* a, const WeightBlock* b,
                                                       const ActivationBlock* activations,
                                                       [[maybe_unused]] int64_t stride,
                                                       Accumulator* sums_a, Accumulator* sums_b) {
  if constexpr (UnitBlocks<Codes>() == 1) {
    MultiplyAddPair<Codes, kTokens>(*a, *b, activations, sums_a, sums_b);
  } else {
    MultiplyAddPairOfUnits<Codes, kTokens>(a, b, activations, stride, sums_a, sums_b);
  }
}

// Keeps a compiler from moving what memory holds into registers across a loop, some of which it
// would then keep on the stack.
[[gnu::always_inline]] inline void KeepInMemory() { asm volatile("" ::: "memory"); }

// Tokens that are multiplied together, at least.
constexpr int kFewestAtOnce = Pairable<ActivationBlock> ? 2 : 1;

// Calls multiply<n>(first) until all tokens have had their turn: kAtOnce at a time, and half or a
// quarter of them where so few are left. One that is missing costs less than another turn.
template <int kAtOnce, class Multiply>
[[gnu::always_inline]] inline void TakeTurn(int64_t first, int64_t left, const Multiply& multiply) {
  if constexpr (kAtOnce > kFewestAtOnce) {
    if (left < std::max(kAtOnce - 1, 2)) {
      constexpr int kHalf = kAtOnce / 2;
      TakeTurn<kHalf>(first, left, multiply);
      if (left > kHalf) TakeTurn<kHalf>(first + kHalf, left - kHalf, multiply);
      return;
    }
  }
  multiply.template operator()<kAtOnce>(first);
}
template <int kAtOnce, class Multiply>
[[gnu::always_inline]] inline void TakeTurns(int64_t tokens, const Multiply& multiply) {
#pragma GCC unroll 1
  for (int64_t first = 0; first < tokens; first += kAtOnce) {
    TakeTurn<kAtOnce>(first, tokens - first, multiply);
  }
}

// sums[r * room + t] += weights[r] . token t, for kRows rows of a unit and the tokens of a tile:
// kTokens, or `tokens` where their sums are in memory.
template <class Codes, int kRows, int kTokens>
[[gnu::always_inline]] inline void MultiplyUnits(const WeightBlock (*weights)[UnitBlocks<Codes>()],
                                                 const ActivationBlock* activations, int64_t room,
                                                 [[maybe_unused]] int64_t tokens,
                                                 Accumulator* sums) {
  constexpr bool kTogether = kTokens > 1 || Pairable<ActivationBlock>;
  if constexpr (kPairTokens > 0 && kRows == 2 && kTogether) {
    constexpr int kUnit = UnitBlocks<Codes>();
    constexpr int kAtOnce = TokensAtOnceInStreams(kTokens, kUnit);
    const auto multiply = [&]<int kNow>(int64_t t) __attribute__((always_inline)) {
      // The compiler must not load, and store, what every turn reads before it is clear which turn
      // comes.
      if (kTokens > kTileTokens) KeepInMemory();
      MultiplyPairOfUnits<Codes, kNow>(weights[0], weights[1], activations + t, room, sums + t,
                                       sums + room + t);
    };
    if constexpr (kTokens > kTileTokens) {
      TakeTurns<kAtOnce>(tokens, multiply);
    } else if constexpr (kTokens == kTileTokens && kTokens > HeldTokens(kUnit)) {
      static_assert(kTileTokens == 2 * kAtOnce);  // more than half of a tile is there
      multiply.template operator()<kAtOnce>(0);
      TakeTurn<kAtOnce>(kAtOnce, tokens - kAtOnce, multiply);
    } else {
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; t += kAtOnce) multiply.template operator()<kAtOnce>(t);
    }
  } else {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      MultiplyUnit<Codes, kTokens>(weights[r], activations, room, sums + r * room);
    }
  }
}

// Sums of the rows and tokens that a loop holds in registers: those of a row's tokens lie side by
// side, those of two rows kStride apart. Those before block 0 are read from zeros: a choice between
// the two in registers would cost the loop of one token, which is short, as much as half a block.
alignas(64) constexpr std::byte kZeroSums[2 * kTileTokens * sizeof(Accumulator)] = {};
inline const Accumulator* SumsBefore(int64_t block, const Accumulator* sums) {
  return block == 0 ? reinterpret_cast<const Accumulator*>(kZeroSums) : sums;
}
template <int kStride, int kRows, int kTokens>
[[gnu::always_inline]] inline void LoadSums(const Accumulator* sums, Accumulator* local) {
  static_assert(((kRows - 1) * kStride + kTokens) * sizeof(Accumulator) <= sizeof(kZeroSums));
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) local[r * kTokens + t] = sums[r * kStride + t];
  }
}
template <int kStride, int kRows, int kTokens>
[[gnu::always_inline]] inline void StoreSums(const Accumulator* local, Accumulator* sums) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) sums[r * kStride + t] = local[r * kTokens + t];
  }
}

// Adjacent rows of some parts of the rows, which are read side by side, and `count` blocks of each,
// the first of which is number `begin` of its row.
struct StreamedRows {
  const std::byte* blocks;  // of the first row of the first part
  // Where rows have a factor: [rows][parts], and the heads that it is read from when a row's turn
  // has come, because then they are in the cache; null where it has been read before.
  float* factors;
  const std::byte* heads;
  int64_t row_bytes;   // from row to row
  int64_t part_bytes;  // from a part's row to the next part's
  int64_t rows, parts;
  int64_t begin, count;
  int64_t tokens;  // of a tile
  int64_t room;    // for the tokens of a tile, in activations and sums
};

// sums[t] += a block of a row . token t.
template <class Codes>
[[gnu::always_inline]] inline void MultiplyCounted(const WeightBlock& weights,
                                                   const ActivationBlock* activations,
                                                   int64_t tokens, Accumulator* sums) {
#pragma GCC unroll 1
  for (int64_t t = 0; t < tokens; ++t) {
    MultiplyAdd<Codes, 1>(weights, activations + t, sums + t);
  }
}

template <class Codes, int kTokens>
struct UnitDots;  // where there are units

// Whether UnitDots takes the blocks of a unit one after the other.
template <class Codes>
constexpr bool TakesBlockByBlock() {
  if constexpr (requires { Codes::kBlockByBlock; }) return Codes::kBlockByBlock;
  return false;
}

// The factors of kRows rows, from row `row` of part `part` on, where rows have some.
template <class Unpacker, int kRows>
[[gnu::always_inline]] inline const float* FactorsOf(const StreamedRows& streams,
                                                     const quant::FormatTraits& traits, int64_t row,
                                                     int64_t part) {
  float* factors = streams.factors + row * streams.parts + part;
  if constexpr (HasRowFactor<Unpacker>) {
    if (streams.heads != nullptr) {
      const std::byte* head = streams.heads + row * streams.row_bytes + part * streams.part_bytes;
      for (int r = 0; r < kRows; ++r) factors[r] = traits.row_factor(head + r * streams.part_bytes);
    }
  }
  return factors;
}

// A block of each of some rows, `step` bytes apart, to the dots of their units.
template <class Unpacker, int kRows, int kBlockOfUnit, class Dots>
[[gnu::always_inline]] inline void StreamBlocks(const std::byte* blocks, int64_t step,
                                                const Ahead& ahead,
                                                const quant::FormatTraits& traits,
                                                [[maybe_unused]] const float* factors,
                                                const ActivationBlock* activations, Dots* dots) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const std::byte* block = blocks + r * step;
    PrefetchAhead(ahead, block, BlockBytes<Unpacker>(traits));
    WeightBlock weights = Unpacker::Unpack(block, traits);
    if constexpr (HasRowFactor<Unpacker>) ScaleBlock(weights, factors[r]);
    dots[r].template Take<kBlockOfUnit>(weights, activations);
  }
}

// sums[r] += a unit of row r . one token, whose blocks are taken one after the other: `bytes` lie
// from one to the other, and there is a second one where the unit is `whole`.
template <class Unpacker, class Codes, int kRows>
[[gnu::always_inline]] inline void StreamUnit(const std::byte* blocks, int64_t step, int64_t bytes,
                                              bool whole, const Ahead& ahead,
                                              const quant::FormatTraits& traits,
                                              const float* factors,
                                              const ActivationBlock* activations,
                                              Accumulator* sums) {
  UnitDots<Codes, 1> dots[kRows];
  StreamBlocks<Unpacker, kRows, 0>(blocks, step, ahead, traits, factors, activations, dots);
  if (whole) {
    StreamBlocks<Unpacker, kRows, 1>(blocks + bytes, step, ahead, traits, factors, activations + 1,
                                     dots);
  } else {
#pragma GCC unroll 4
    for (auto& each : dots) each.template Leave<1>();
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) dots[r].AddTo(activations, sums + r);
}

// sums[row][part][t] += the row of the part . token t, while a block's weights are in registers;
// activations [block][kTokens], or [block][room] where kAnyRoom. The sums of more than HeldTokens
// stay in memory: registers would have room for those of one row, but products take a third less
// time where two rows share what is loaded of the activations.
template <class Unpacker, int kTokens>
[[gnu::noinline]] void MultiplyStreams(const StreamedRows& streams,
                                       const quant::FormatTraits& traits,
                                       const ActivationBlock* activations, Accumulator* sums) {
  using Stored = CodesFor<Unpacker, kTokens>;
  using Codes = ProductCodes<Stored>;
  constexpr int kUnit = UnitBlocks<Codes>();
  constexpr int kRows = RowsAtOnce<kTokens>();
  constexpr int kTogether = std::min(kRows, kRowsAtOnce);
  constexpr bool kHeld = kTokens <= HeldTokens(kUnit) && !kCounted<kTokens>;
  const int64_t bytes = BlockBytes<Unpacker>(traits);
  const int64_t step = streams.part_bytes;
  const int64_t count = streams.count;
  const Ahead ahead = {StreamPrefetchBytes(bytes), StreamPrefetchTo()};
  const Ahead far = {kFarPrefetches * ahead.bytes, PrefetchTo::kSecondLevel};
  const bool prefetches_far = PrefetchesFar(ahead.to);
  const int64_t room = kAnyRoom<kTokens> ? streams.room : kTokens;
  activations += streams.begin * room;
  for (int64_t row = 0; row < streams.rows; ++row) {
    for (int64_t part = 0; part < streams.parts; part += kRows, sums += kRows * room) {
      const std::byte* block = streams.blocks + row * streams.row_bytes + part * step;
      Accumulator local[kRows * kTokens];
      Accumulator* held = kHeld ? local : sums;
      if constexpr (kHeld) {
        LoadSums<kTokens, kRows, kTokens>(SumsBefore(streams.begin, sums), local);
      } else {
        if (streams.begin == 0) std::fill_n(sums, kRows * room, Zero());
      }
      [[maybe_unused]] const float* factors =
          FactorsOf<Unpacker, kRows>(streams, traits, row, part);
      for (int64_t i = 0; i < count; i += kUnit, block += kUnit * bytes) {
        const bool whole = kUnit == 1 || i + 1 < count;
        // Not unrolled: every copy of an unpacker takes long to compile.
#pragma GCC unroll 1
        for (int first = 0; first < kRows; first += kTogether) {
          const std::byte* from = block + first * step;
          if constexpr (kTokens == 1 && TakesBlockByBlock<Codes>() && !UnpacksTwo<Unpacker>) {
            StreamUnit<Unpacker, Codes, kTogether>(from, step, bytes, whole, ahead, traits,
                                                   factors + first, activations + i, held + first);
            if constexpr (!kHeld) KeepInMemory();
            continue;
          }
          WeightBlock weights[kTogether][kUnit];
#pragma GCC unroll 4
          for (int r = 0; r < kTogether; ++r) {
            const std::byte* row_block = from + r * step;
            PrefetchAhead(ahead, row_block, kUnit * bytes);
            if (kTokens > 1 && prefetches_far) PrefetchAhead(far, row_block, kUnit * bytes);
            if constexpr (UnpacksTwo<Unpacker> && kTogether == 2 && kUnit == 1) continue;
            UnpackUnit<Unpacker, kUnit>(row_block, bytes, whole, traits, weights[r]);
            if constexpr (HasRowFactor<Unpacker>) {
              for (WeightBlock& b : weights[r]) ScaleBlock(b, factors[first + r]);
            }
            if constexpr (kUnit > 1) JoinUnit<Stored>(weights[r], weights[r]);
          }
          if constexpr (UnpacksTwo<Unpacker> && kTogether == 2 && kUnit == 1) {
            Unpacker::UnpackTwo(from, from + step, weights[0]);
          }
          if constexpr (kCounted<kTokens>) {
            static_assert(kTogether == 1 && kUnit == 1);
            MultiplyCounted<Codes>(weights[0][0], activations + i * room, streams.tokens, sums);
          } else {
            MultiplyUnits<Codes, kTogether, kTokens>(weights, activations + i * room, room,
                                                     streams.tokens, held + first * room);
          }
          if constexpr (!kHeld) KeepInMemory();
        }
      }
      if constexpr (kHeld) StoreSums<kTokens, kRows, kTokens>(local, sums);
    }
  }
}

// `count` blocks of some rows, from block `begin` of each on, unpacked: row r at blocks[r *
// stride].
struct UnpackedRows {
  const WeightBlock* blocks;
  int64_t stride;
  int64_t begin;
  int64_t count;
  int64_t tokens;  // of a tile
};

// sums = before + the products of unpacked rows with kAtOnce tokens, from `activations` on.
template <class Codes, int kRows, int kTokens, int kAtOnce>
[[gnu::noinline]] void MultiplyRowsAtOnce(const UnpackedRows& rows,
                                          const ActivationBlock* activations,
                                          const Accumulator* before, Accumulator* sums) {
  constexpr int kUnit = UnitBlocks<Codes>();
  Accumulator local[kRows * kAtOnce];
  LoadSums<kTileTokens, kRows, kAtOnce>(before, local);
  for (int64_t i = 0; i < rows.count; i += kUnit, activations += kUnit * kTokens) {
    const WeightBlock* weights = rows.blocks + i;
    if constexpr (kPairTokens > 0 && kRows == 2) {
      MultiplyPairOfUnits<Codes, kAtOnce>(weights, weights + rows.stride, activations, kTokens,
                                          local, local + kAtOnce);
    } else {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        MultiplyUnit<Codes, kAtOnce>(weights + r * rows.stride, activations, kTokens,
                                     local + r * kAtOnce);
      }
    }
  }
  StoreSums<kTileTokens, kRows, kAtOnce>(local, sums);
}

// sums[r * kTileTokens + t] += rows[r] . token t; activations [block][kTokens].
template <class Codes, int kRows, int kTokens>
[[gnu::noinline]] void MultiplyRows(const UnpackedRows& rows, const ActivationBlock* activations,
                                    Accumulator* sums) {
  activations += rows.begin * kTokens;
  const Accumulator* before = SumsBefore(rows.begin, sums);
  const auto multiply = [&]<int kNow>(int64_t t) __attribute__((always_inline)) {
    MultiplyRowsAtOnce<Codes, kRows, kTokens, kNow>(rows, activations + t, before + t, sums + t);
  };
  if constexpr (kTokens == kTileTokens) {
    TakeTurns<TokensAtOnce(kTokens)>(rows.tokens, multiply);
  } else {
    multiply.template operator()<kTokens>(0);
  }
}
