// Panels of weights for products with 64 and more tokens, as AVX2 multiplies them. Included inside
// the target region of matmul.cpp, after panel_tile.inl.
//
// VPMADDUBSW adds two products of an unsigned and a signed byte in 16 bits; as many lines as
// cannot saturate are added there before VPMADDWD widens, which multiplies with a power of two by
// the way. So one or two parts make an integer dot product, halves of its lines where codes are
// larger than 15; codes larger than 63 are widened line by line. Those of eight bits would saturate
// alone: such weights and the activations that they meet have 16 bits, for VPMADDWD.

constexpr bool kWidePanels = true;

enum class PanelProducts { kLinesTogether, kLineAlone, kWide };

// How kLines lines of codes, those of a scale, are multiplied.
template <class CodesType, int kLines>
struct LineProducts {
  static constexpr bool kHasOffsets = CodesType::kHasOffsets;
  static constexpr PanelProducts kProducts = CodesType::kCodeMax > 127 ? PanelProducts::kWide
                                             : CodesType::kCodeMax > 63
                                                 ? PanelProducts::kLineAlone
                                                 : PanelProducts::kLinesTogether;
  static constexpr bool kWide = kProducts == PanelProducts::kWide;
  static constexpr int kPairMax = 2 * 127;  // of a pair of products, times the largest code
  static constexpr int kParts = kLines * kPairMax * CodesType::kCodeMax > INT16_MAX ? 2 : 1;
  static constexpr int kPartLines =
      kProducts == PanelProducts::kLinesTogether ? kLines / kParts : 1;
  static_assert(kWide || kPartLines * kPairMax * CodesType::kCodeMax <= INT16_MAX);
  // Biased codes are taken times 128 / kBias, so that their bias is the 128 that the activations'
  // `starts` take off. Weights of 16 bits, and codes without bias, need nothing taken off.
  static constexpr bool kBiased = !kWide && CodesType::kBias != 0;
  static constexpr int kFactor = kBiased ? 128 / std::max(CodesType::kBias, 1) : 1;
  static constexpr float kScaleFactor = 1.0f / kFactor;

  template <class Codes>
  static __m256i Stored(__m256i codes) {
    return codes;
  }
};

// Codes of eight bits have no strips: signs of each token for each line take longer than blocks.
template <class Codes, int kLines>
using StripProducts = LineProducts<Codes, kLines>;
template <class Codes>
constexpr bool kHasStrips = Codes::kCodeMax <= 127;

// How panels hold the codes of a format with one scale per row for kScaleValues columns.
template <class CodesType, int kScaleValues>
struct PanelTraits : LineProducts<CodesType, kScaleValues / 4> {
  using Products = LineProducts<CodesType, kScaleValues / 4>;
  static constexpr bool kWide = Products::kWide;
  static constexpr int kScales = 32 / kScaleValues;
  // Vectors of a block: before the first scale, from one scale to the next, altogether.
  static constexpr int kCodes = (kWide ? 16 : 8) * kPanelVectors;
  static constexpr int kScaleStride = (Products::kHasOffsets ? 3 : 2) * kPanelVectors;
  static constexpr int kBlock = kCodes + kScales * kScaleStride;
  // From the activations of a block to those of the next, in bytes.
  static constexpr int kCodeStep = kWide ? 64 : 32;
  static constexpr int kScaleStep = 4;
  static constexpr int kSumStep = 4 * kScales;

  // Columns 4 * line to 4 * line + 3 of eight rows; in 16 bits two lines of two columns.
  template <class Codes>
  static void PutLine(__m256i codes, int64_t line, __m256i* block) {
    if constexpr (!kWide) {
      block[line * kPanelVectors] = codes;
    } else {
      const __m256i weights = _mm256_sub_epi8(codes, _mm256_set1_epi8(Codes::kBias));
      block += 2 * line * kPanelVectors;
      block[0] = WidenBytes<0>(weights);
      block[kPanelVectors] = WidenBytes<2>(weights);
    }
  }

  // Bytes kFirst and kFirst + 1 of each 32-bit lane as two words.
  template <int kFirst>
  static __m256i WidenBytes(__m256i lanes) {
    if constexpr (kFirst == 0) lanes = _mm256_slli_epi32(lanes, 16);
    return _mm256_srai_epi16(_mm256_blend_epi16(_mm256_srli_epi32(lanes, 8), lanes, 0xaa), 8);
  }
};

template <class Unpacker>
using PanelTraitsOf = PanelTraits<typename Unpacker::Codes, Unpacker::kScaleValues>;

template <class Unpacker>
using PanelLinesOf = PanelLines<PanelTraitsOf<Unpacker>, typename Unpacker::Codes>;

// The factor that VPMADDWD multiplies 16-bit sums by while it widens them.
struct alignas(32) PanelFactors {
  int16_t words[16];
  explicit constexpr PanelFactors(int16_t factor) : words{} {
    for (int16_t& word : words) word = factor;
  }
};

constexpr int kPanelBlockMax = PanelTraits<CodeTraits<0, 128, true>, 16>::kBlock;

// clang-format off
// Products of a line with a token's activations, which come to ymm14: first of a part, and more.
#define KVANT_FIRST_TOGETHER(line, record, sum0, sum1) \
  "vpbroadcastd 4*(" #line ")(%%" #record ", %[codes]), %%ymm14\n\t" \
  "vpmaddubsw %%ymm14, %%ymm12, %%ymm" #sum0 "\n\t" \
  "vpmaddubsw %%ymm14, %%ymm13, %%ymm" #sum1 "\n\t"
#define KVANT_MORE_TOGETHER(line, record, sum0, sum1) \
  "vpbroadcastd 4*(" #line ")(%%" #record ", %[codes]), %%ymm14\n\t" \
  "vpmaddubsw %%ymm14, %%ymm12, %%ymm15\n\t" \
  "vpmaddubsw %%ymm14, %%ymm13, %%ymm14\n\t" \
  "vpaddw %%ymm15, %%ymm" #sum0 ", %%ymm" #sum0 "\n\t" \
  "vpaddw %%ymm14, %%ymm" #sum1 ", %%ymm" #sum1 "\n\t"

// Products of a line where each line is widened to 32 bits.
#define KVANT_FIRST_ALONE(line, record, sum0, sum1) \
  KVANT_FIRST_TOGETHER(line, record, sum0, sum1) \
  "vpmaddwd %[factors], %%ymm" #sum0 ", %%ymm" #sum0 "\n\t" \
  "vpmaddwd %[factors], %%ymm" #sum1 ", %%ymm" #sum1 "\n\t"
#define KVANT_MORE_ALONE(line, record, sum0, sum1) \
  "vpbroadcastd 4*(" #line ")(%%" #record ", %[codes]), %%ymm14\n\t" \
  "vpmaddubsw %%ymm14, %%ymm12, %%ymm15\n\t" \
  "vpmaddubsw %%ymm14, %%ymm13, %%ymm14\n\t" \
  "vpmaddwd %[factors], %%ymm15, %%ymm15\n\t" \
  "vpmaddwd %[factors], %%ymm14, %%ymm14\n\t" \
  "vpaddd %%ymm15, %%ymm" #sum0 ", %%ymm" #sum0 "\n\t" \
  "vpaddd %%ymm14, %%ymm" #sum1 ", %%ymm" #sum1 "\n\t"

// Products of a line of 16-bit codes; a token's activations lie kWideTokenBytes, 512 * 2, after
// another's.
#define KVANT_FIRST_WIDE(line, record, sum0, sum1) \
  "vpbroadcastd 4*(" #line ")+512*" #sum0 "(%[codes]), %%ymm14\n\t" \
  "vpmaddwd %%ymm14, %%ymm12, %%ymm" #sum0 "\n\t" \
  "vpmaddwd %%ymm14, %%ymm13, %%ymm" #sum1 "\n\t"
#define KVANT_MORE_WIDE(line, record, sum0, sum1) \
  "vpbroadcastd 4*(" #line ")+512*" #sum0 "(%[codes]), %%ymm14\n\t" \
  "vpmaddwd %%ymm14, %%ymm12, %%ymm15\n\t" \
  "vpmaddwd %%ymm14, %%ymm13, %%ymm14\n\t" \
  "vpaddd %%ymm15, %%ymm" #sum0 ", %%ymm" #sum0 "\n\t" \
  "vpaddd %%ymm14, %%ymm" #sum1 ", %%ymm" #sum1 "\n\t"

// The first 2, 4, 8 or 16 lines of a part: those of block and activations from `line` on.
#define KVANT_FIRST(kind, line) \
  KVANT_LOAD_LINE(line) KVANT_FOR_TOKENS(KVANT_FIRST_##kind, line)
#define KVANT_MORE(kind, line) \
  KVANT_LOAD_LINE(line) KVANT_FOR_TOKENS(KVANT_MORE_##kind, line)
#define KVANT_MORE_4(kind, line) \
  KVANT_MORE(kind, line) KVANT_MORE(kind, line+1) KVANT_MORE(kind, line+2) KVANT_MORE(kind, line+3)
#define KVANT_PART_2(kind, line) KVANT_FIRST(kind, line) KVANT_MORE(kind, line+1)
#define KVANT_PART_4(kind, line) \
  KVANT_PART_2(kind, line) KVANT_MORE(kind, line+2) KVANT_MORE(kind, line+3)
#define KVANT_PART_8(kind, line) KVANT_PART_4(kind, line) KVANT_MORE_4(kind, line+4)
#define KVANT_PART_16(kind, line) \
  KVANT_PART_8(kind, line) KVANT_MORE_4(kind, line+8) KVANT_MORE_4(kind, line+12)

// The activations' starts, or kDotOrigin, are added to integer sums.
#define KVANT_ADD_START(unused, record, sum0, sum1) \
  "vpaddd %%ymm14, %%ymm" #sum0 ", %%ymm" #sum0 "\n\t" \
  "vpaddd %%ymm14, %%ymm" #sum1 ", %%ymm" #sum1 "\n\t"
#define KVANT_ADD_STARTS(scale, record, sum0, sum1) \
  "vpbroadcastd 4*" #scale "(%%" #record ", %[starts]), %%ymm14\n\t" \
  KVANT_ADD_START(scale, record, sum0, sum1)
#define KVANT_FROM_STARTS(scale) KVANT_FOR_TOKENS(KVANT_ADD_STARTS, scale)
#define KVANT_FROM_ORIGIN \
  "vpbroadcastd %[origin], %%ymm14\n\t" KVANT_FOR_TOKENS(KVANT_ADD_START, 0)

// From sums of pairs to integers.
#define KVANT_WIDEN(unused, record, sum0, sum1) \
  "vpmaddwd %%ymm12, %%ymm" #sum0 ", %%ymm" #sum0 "\n\t" \
  "vpmaddwd %%ymm12, %%ymm" #sum1 ", %%ymm" #sum1 "\n\t"
#define KVANT_WIDEN_TO_START(scale, record, sum0, sum1) \
  KVANT_WIDEN(scale, record, sum0, sum1) KVANT_ADD_STARTS(scale, record, sum0, sum1)
#define KVANT_WIDEN_TO_ORIGIN(unused, record, sum0, sum1) \
  KVANT_WIDEN(unused, record, sum0, sum1) KVANT_ADD_START(unused, record, sum0, sum1)
#define KVANT_TO_STARTS(scale) \
  "vmovdqa %[factors], %%ymm12\n\t" KVANT_FOR_TOKENS(KVANT_WIDEN_TO_START, scale)
#define KVANT_TO_ORIGIN \
  "vmovdqa %[factors], %%ymm12\n\t" "vpbroadcastd %[origin], %%ymm14\n\t" \
  KVANT_FOR_TOKENS(KVANT_WIDEN_TO_ORIGIN, 0)

#define KVANT_TILE_CONSTANTS \
  [factors] "m"(kFactors), [origin] "m"(kOrigin), [waiting] "m"(waiting_sums),

// The integers of a scale's first part wait in memory while the registers serve its last part.
#define KVANT_STORE_SUMS(unused, record, sum0, sum1) \
  "vmovdqa %%ymm" #sum0 ", 32*" #sum0 "(%%rax)\n\t" \
  "vmovdqa %%ymm" #sum1 ", 32*" #sum1 "(%%rax)\n\t"
#define KVANT_WIDEN_LAST(unused, record, sum0, sum1) \
  KVANT_WIDEN(unused, record, sum0, sum1) \
  "vpaddd 32*" #sum0 "(%%rax), %%ymm" #sum0 ", %%ymm" #sum0 "\n\t" \
  "vpaddd 32*" #sum1 "(%%rax), %%ymm" #sum1 ", %%ymm" #sum1 "\n\t"
#define KVANT_THEN(part) \
  "mov %[waiting], %%rax\n\t" \
  KVANT_FOR_TOKENS(KVANT_STORE_SUMS, 0) part \
  "vmovdqa %[factors], %%ymm12\n\t" KVANT_FOR_TOKENS(KVANT_WIDEN_LAST, 0)
// clang-format on

// totals[kPanelTokens][kPanelVectors] += `blocks` (at least 1) blocks of a panel times the tokens
// of a tile.
template <class Traits>
[[gnu::noinline]] void MultiplyTile(const __m256* panel, int64_t blocks, const TileTokens& tokens,
                                    PanelActivations at, __m256* totals) {
  constexpr bool kHasOffsets = Traits::kHasOffsets;
  constexpr bool kAlone = Traits::kProducts == PanelProducts::kLineAlone;
  constexpr int kPartLines = Traits::kPartLines;
  const std::byte* const* records = tokens.records;
  __m256i waiting[kPanelTokens * kPanelVectors];
  __m256i* waiting_sums = waiting;
  static constexpr PanelFactors kFactors(Traits::kFactor);
  static constexpr int32_t kOrigin = kDotOriginBits;
  if constexpr (Traits::kWide) {
    static_assert(kWideTokenBytes == 512 * 2);
    at.codes = reinterpret_cast<intptr_t>(tokens.wide_codes);
    if constexpr (Traits::kScales == 1) {
      static_assert(!kHasOffsets);
      KVANT_MULTIPLY_TILE(KVANT_PART_16(WIDE, 0) KVANT_FROM_ORIGIN KVANT_FLUSH(32));
    } else if constexpr (!kHasOffsets) {
      KVANT_MULTIPLY_TILE(KVANT_PART_8(WIDE, 0) KVANT_FROM_ORIGIN KVANT_FLUSH(32)
                              KVANT_PART_8(WIDE, 8) KVANT_FROM_ORIGIN KVANT_FLUSH(36));
    } else {
      KVANT_MULTIPLY_TILE(KVANT_PART_8(WIDE, 0) KVANT_FROM_ORIGIN KVANT_FLUSH_WITH_OFFSETS(
          0, 32) KVANT_PART_8(WIDE, 8) KVANT_FROM_ORIGIN KVANT_FLUSH_WITH_OFFSETS(1, 38));
    }
  } else if constexpr (kAlone) {
    static_assert(Traits::kBiased && !kHasOffsets);
    if constexpr (Traits::kScales == 1) {
      KVANT_MULTIPLY_TILE(KVANT_PART_8(ALONE, 0) KVANT_FROM_STARTS(0) KVANT_FLUSH(16));
    } else {
      KVANT_MULTIPLY_TILE(KVANT_PART_4(ALONE, 0) KVANT_FROM_STARTS(0) KVANT_FLUSH(16)
                              KVANT_PART_4(ALONE, 4) KVANT_FROM_STARTS(1) KVANT_FLUSH(20));
    }
  } else if constexpr (kPartLines == 8 && Traits::kBiased) {
    KVANT_MULTIPLY_TILE(KVANT_PART_8(TOGETHER, 0) KVANT_TO_STARTS(0) KVANT_FLUSH(16));
  } else if constexpr (kPartLines == 8) {
    static_assert(kHasOffsets);
    KVANT_MULTIPLY_TILE(KVANT_PART_8(TOGETHER, 0) KVANT_TO_ORIGIN KVANT_FLUSH_WITH_OFFSETS(0, 16));
  } else if constexpr (kPartLines == 4 && Traits::kScales == 2 && kHasOffsets) {
    static_assert(!Traits::kBiased && Traits::kParts == 1);
    KVANT_MULTIPLY_TILE(KVANT_PART_4(TOGETHER, 0) KVANT_TO_ORIGIN KVANT_FLUSH_WITH_OFFSETS(
        0, 16) KVANT_PART_4(TOGETHER, 4) KVANT_TO_ORIGIN KVANT_FLUSH_WITH_OFFSETS(1, 22));
  } else if constexpr (kPartLines == 4 && Traits::kScales == 2) {
    static_assert(Traits::kBiased && Traits::kParts == 1);
    KVANT_MULTIPLY_TILE(KVANT_PART_4(TOGETHER, 0) KVANT_TO_STARTS(0) KVANT_FLUSH(16)
                            KVANT_PART_4(TOGETHER, 4) KVANT_TO_STARTS(1) KVANT_FLUSH(20));
  } else if constexpr (kPartLines == 4 && Traits::kBiased) {
    static_assert(!kHasOffsets);
    KVANT_MULTIPLY_TILE(KVANT_PART_4(TOGETHER, 0) KVANT_TO_STARTS(0)
                            KVANT_THEN(KVANT_PART_4(TOGETHER, 4)) KVANT_FLUSH(16));
  } else if constexpr (kPartLines == 4) {
    static_assert(kHasOffsets);
    KVANT_MULTIPLY_TILE(KVANT_PART_4(TOGETHER, 0) KVANT_TO_ORIGIN KVANT_THEN(
        KVANT_PART_4(TOGETHER, 4)) KVANT_FLUSH_WITH_OFFSETS(0, 16));
  } else {
    static_assert(kPartLines == 2 && Traits::kBiased && !kHasOffsets);
    KVANT_MULTIPLY_TILE(KVANT_PART_2(TOGETHER, 0) KVANT_TO_STARTS(0)
                            KVANT_THEN(KVANT_PART_2(TOGETHER, 2)) KVANT_FLUSH(16)
                                KVANT_PART_2(TOGETHER, 4) KVANT_TO_STARTS(1)
                                    KVANT_THEN(KVANT_PART_2(TOGETHER, 6)) KVANT_FLUSH(20));
  }
}
