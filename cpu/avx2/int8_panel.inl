// Panels of weights for products with 64 and more tokens, as AVX2 multiplies them. Included inside
// the target region of matmul.cpp, after panel_tile.inl.
//
// VPMADDUBSW adds two products of an unsigned and a signed byte in 16 bits; as many lines as
// cannot saturate are added there before VPMADDWD widens, which multiplies with a power of two by
// the way. So one or two parts make an integer dot product: two halves of its lines where codes are
// larger than 15, or, of codes of eight bits, the low and the high nibbles of all lines.

// How panels hold the codes of a format with one scale per row for kScaleValues columns.
template <class CodesType, int kScaleValues>
struct PanelTraits {
  static constexpr bool kHasOffsets = CodesType::kHasOffsets;
  static constexpr int kScales = 32 / kScaleValues;
  static constexpr int kLines = kScaleValues / 4;  // of a scale
  // Unsigned codes of up to 6 bits lie as they are; others as code + 128, low nibbles apart.
  static constexpr bool kNibbles = CodesType::kCodeMax > 63;
  static constexpr int kPairMax = 2 * 127;  // of a pair of products, times the largest code
  static constexpr int kParts =
      kNibbles || kLines * kPairMax * CodesType::kCodeMax > INT16_MAX ? 2 : 1;
  static constexpr int kPartLines = kNibbles ? kLines : kLines / kParts;
  static_assert(kPartLines * kPairMax * (kNibbles ? 15 : CodesType::kCodeMax) <= INT16_MAX);
  // Biased codes are taken times 128 / kBias, so that their bias is the 128 that the activations'
  // `starts` take off. Unsigned codes without bias need nothing taken off.
  static constexpr bool kBiased = kNibbles || CodesType::kBias != 0;
  static constexpr int kFactor = kNibbles || !kBiased ? 1 : 128 / std::max(CodesType::kBias, 1);
  static constexpr float kScaleFactor = 1.0f / kFactor;
  static constexpr int kLastFactor = kNibbles ? 16 : kFactor;  // of the last part
  // Vectors of a block: before the first scale, from one scale to the next, altogether.
  static constexpr int kCodes = (kNibbles ? 16 : 8) * kPanelVectors;
  static constexpr int kScaleStride = (kHasOffsets ? 3 : 2) * kPanelVectors;
  static constexpr int kBlock = kCodes + kScales * kScaleStride;

  // Where the lines of a part of a scale begin, in lines.
  static constexpr int LinesOf(int scale, int part) { return (scale * kParts + part) * kPartLines; }

  // Columns 4 * line to 4 * line + 3 of eight rows.
  template <class Codes>
  static void PutLine(__m256i codes, int64_t line, __m256i* block) {
    if constexpr (!kNibbles) {
      block[line * kPanelVectors] = codes;
    } else {
      const __m256i mask = _mm256_set1_epi8(0x0f);
      const __m256i rest = _mm256_set1_epi8(static_cast<char>(128 - Codes::kBias));
      const __m256i bytes = _mm256_add_epi8(codes, rest);
      block += LinesOf(static_cast<int>(line / kLines), 0) * kPanelVectors;
      line %= kLines;
      block[line * kPanelVectors] = _mm256_and_si256(bytes, mask);
      block[(kLines + line) * kPanelVectors] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
    }
  }
};

template <class Unpacker>
using PanelTraitsOf = PanelTraits<typename Unpacker::Codes, Unpacker::kScaleValues>;

constexpr int kPanelBlockMax = PanelTraits<CodeTraits<0, 128, true>, 16>::kBlock;

// clang-format off
// Products of a line with a token's activations, which are in ymm14: the first of a part, and more.
#define KVANT_FIRST_PRODUCTS(line, record, sum0, sum1) \
  "vpbroadcastd 4*(" #line ")(%%" #record ", %[codes]), %%ymm14\n\t" \
  "vpmaddubsw %%ymm14, %%ymm12, %%ymm" #sum0 "\n\t" \
  "vpmaddubsw %%ymm14, %%ymm13, %%ymm" #sum1 "\n\t"
#define KVANT_MORE_PRODUCTS(line, record, sum0, sum1) \
  "vpbroadcastd 4*(" #line ")(%%" #record ", %[codes]), %%ymm14\n\t" \
  "vpmaddubsw %%ymm14, %%ymm12, %%ymm15\n\t" \
  "vpmaddubsw %%ymm14, %%ymm13, %%ymm14\n\t" \
  "vpaddw %%ymm15, %%ymm" #sum0 ", %%ymm" #sum0 "\n\t" \
  "vpaddw %%ymm14, %%ymm" #sum1 ", %%ymm" #sum1 "\n\t"

// The first 2, 4 or 8 lines of a part: lines of the block from `at` on, columns from 4 * line on.
#define KVANT_MORE(at, line) \
  KVANT_LOAD_LINE(at) KVANT_FOR_TOKENS(KVANT_MORE_PRODUCTS, line)
#define KVANT_PART_2(at, line) \
  KVANT_LOAD_LINE(at) KVANT_FOR_TOKENS(KVANT_FIRST_PRODUCTS, line) KVANT_MORE(at+1, line+1)
#define KVANT_PART_4(at, line) \
  KVANT_PART_2(at, line) KVANT_MORE(at+2, line+2) KVANT_MORE(at+3, line+3)
#define KVANT_PART_8(at, line) \
  KVANT_PART_4(at, line) KVANT_MORE(at+4, line+4) KVANT_MORE(at+5, line+5) \
  KVANT_MORE(at+6, line+6) KVANT_MORE(at+7, line+7)

// From sums of pairs to integers, added to what is in ymm14: the activations' starts or kDotOrigin.
#define KVANT_WIDEN(sum0, sum1) \
  "vpmaddwd %%ymm12, %%ymm" #sum0 ", %%ymm" #sum0 "\n\t" \
  "vpmaddwd %%ymm12, %%ymm" #sum1 ", %%ymm" #sum1 "\n\t" \
  "vpaddd %%ymm14, %%ymm" #sum0 ", %%ymm" #sum0 "\n\t" \
  "vpaddd %%ymm14, %%ymm" #sum1 ", %%ymm" #sum1 "\n\t"
#define KVANT_WIDEN_TO_START(scale, record, sum0, sum1) \
  "vpbroadcastd 4*" #scale "(%%" #record ", %[starts]), %%ymm14\n\t" KVANT_WIDEN(sum0, sum1)
#define KVANT_WIDEN_TO_ORIGIN(scale, record, sum0, sum1) KVANT_WIDEN(sum0, sum1)
#define KVANT_TO_STARTS(scale) \
  "vpbroadcastd %[factors], %%ymm12\n\t" KVANT_FOR_TOKENS(KVANT_WIDEN_TO_START, scale)
#define KVANT_TO_ORIGIN \
  "vpbroadcastd %[factors], %%ymm12\n\t" "vpbroadcastd %[origin], %%ymm14\n\t" \
  KVANT_FOR_TOKENS(KVANT_WIDEN_TO_ORIGIN, 0)

#define KVANT_TILE_CONSTANTS \
  [factors] "m"(kFactors), [last_factors] "m"(kLastFactors), [origin] "m"(kOrigin), \
  [waiting] "m"(waiting_sums),

// The integers of a scale's first part wait in memory while the registers serve its last part.
#define KVANT_STORE_SUMS(unused, record, sum0, sum1) \
  "vmovdqa %%ymm" #sum0 ", 32*" #sum0 "(%%rax)\n\t" \
  "vmovdqa %%ymm" #sum1 ", 32*" #sum1 "(%%rax)\n\t"
#define KVANT_WIDEN_LAST(unused, record, sum0, sum1) \
  "vpmaddwd %%ymm12, %%ymm" #sum0 ", %%ymm" #sum0 "\n\t" \
  "vpmaddwd %%ymm12, %%ymm" #sum1 ", %%ymm" #sum1 "\n\t" \
  "vpaddd 32*" #sum0 "(%%rax), %%ymm" #sum0 ", %%ymm" #sum0 "\n\t" \
  "vpaddd 32*" #sum1 "(%%rax), %%ymm" #sum1 ", %%ymm" #sum1 "\n\t"
#define KVANT_THEN(part) \
  "mov %[waiting], %%rax\n\t" \
  KVANT_FOR_TOKENS(KVANT_STORE_SUMS, 0) part \
  "vpbroadcastd %[last_factors], %%ymm12\n\t" KVANT_FOR_TOKENS(KVANT_WIDEN_LAST, 0)
// clang-format on

// totals[kPanelTokens][kPanelVectors] += `blocks` (at least 1) blocks of a panel times the tokens
// of a tile.
template <class Traits>
[[gnu::noinline]] void MultiplyTile(const __m256* panel, int64_t blocks, const TileTokens& tokens,
                                    PanelActivations at, __m256* totals) {
  constexpr bool kNibbles = Traits::kNibbles;
  constexpr bool kHasOffsets = Traits::kHasOffsets;
  constexpr int kPartLines = Traits::kPartLines;
  const std::byte* const* records = tokens.records;
  __m256i waiting[kPanelTokens * kPanelVectors];
  __m256i* waiting_sums = waiting;
  static constexpr int32_t kFactors = Traits::kFactor * 0x10001;
  static constexpr int32_t kLastFactors = Traits::kLastFactor * 0x10001;
  static constexpr int32_t kOrigin = kDotOriginBits;
  if constexpr (kPartLines == 8 && !kNibbles && Traits::kBiased) {
    KVANT_MULTIPLY_TILE(KVANT_PART_8(0, 0) KVANT_TO_STARTS(0) KVANT_FLUSH(16));
  } else if constexpr (kPartLines == 8 && !kNibbles) {
    static_assert(kHasOffsets);
    KVANT_MULTIPLY_TILE(KVANT_PART_8(0, 0) KVANT_TO_ORIGIN KVANT_FLUSH_WITH_OFFSETS(0, 16));
  } else if constexpr (kPartLines == 8) {
    static_assert(!kHasOffsets);
    KVANT_MULTIPLY_TILE(KVANT_PART_8(0, 0) KVANT_TO_STARTS(0) KVANT_THEN(KVANT_PART_8(8, 0))
                            KVANT_FLUSH(32));
  } else if constexpr (kPartLines == 4 && !kNibbles && Traits::kScales == 2 && kHasOffsets) {
    static_assert(!Traits::kBiased && Traits::kParts == 1);
    KVANT_MULTIPLY_TILE(KVANT_PART_4(0, 0) KVANT_TO_ORIGIN KVANT_FLUSH_WITH_OFFSETS(0, 16)
                            KVANT_PART_4(4, 4) KVANT_TO_ORIGIN KVANT_FLUSH_WITH_OFFSETS(1, 22));
  } else if constexpr (kPartLines == 4 && !kNibbles && Traits::kScales == 2) {
    static_assert(Traits::kBiased && Traits::kParts == 1);
    KVANT_MULTIPLY_TILE(KVANT_PART_4(0, 0) KVANT_TO_STARTS(0) KVANT_FLUSH(16) KVANT_PART_4(4, 4)
                            KVANT_TO_STARTS(1) KVANT_FLUSH(20));
  } else if constexpr (kPartLines == 4 && !kNibbles && Traits::kBiased) {
    static_assert(!kHasOffsets);
    KVANT_MULTIPLY_TILE(KVANT_PART_4(0, 0) KVANT_TO_STARTS(0) KVANT_THEN(KVANT_PART_4(4, 4))
                            KVANT_FLUSH(16));
  } else if constexpr (kPartLines == 4 && !kNibbles) {
    static_assert(kHasOffsets);
    KVANT_MULTIPLY_TILE(KVANT_PART_4(0, 0) KVANT_TO_ORIGIN KVANT_THEN(KVANT_PART_4(4, 4))
                            KVANT_FLUSH_WITH_OFFSETS(0, 16));
  } else if constexpr (kPartLines == 4 && kHasOffsets) {
    KVANT_MULTIPLY_TILE(KVANT_PART_4(0, 0) KVANT_TO_STARTS(0) KVANT_THEN(KVANT_PART_4(4, 0))
                            KVANT_FLUSH_WITH_OFFSETS(0, 32) KVANT_PART_4(8, 4) KVANT_TO_STARTS(1)
                                KVANT_THEN(KVANT_PART_4(12, 4)) KVANT_FLUSH_WITH_OFFSETS(1, 38));
  } else if constexpr (kPartLines == 4) {
    KVANT_MULTIPLY_TILE(KVANT_PART_4(0, 0) KVANT_TO_STARTS(0) KVANT_THEN(KVANT_PART_4(4, 0))
                            KVANT_FLUSH(32) KVANT_PART_4(8, 4) KVANT_TO_STARTS(1)
                                KVANT_THEN(KVANT_PART_4(12, 4)) KVANT_FLUSH(36));
  } else {
    static_assert(kPartLines == 2 && Traits::kBiased && !kHasOffsets);
    KVANT_MULTIPLY_TILE(KVANT_PART_2(0, 0) KVANT_TO_STARTS(0) KVANT_THEN(KVANT_PART_2(2, 2))
                            KVANT_FLUSH(16) KVANT_PART_2(4, 4) KVANT_TO_STARTS(1)
                                KVANT_THEN(KVANT_PART_2(6, 6)) KVANT_FLUSH(20));
  }
}
