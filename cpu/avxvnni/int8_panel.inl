// Panels of weights for products with 64 and more tokens, as AVX-VNNI multiplies them. Included
// inside the target region of matmul.cpp, after panel_tile.inl.
//
// Codes lie as code + 128, and dot products begin with what the activations' `starts` take off: the
// arithmetic of cpu/avx512vnni in half the width, with the same bits.

constexpr bool kWidePanels = false;

// How lines of codes are stored for products.
struct StoredLines {
  static constexpr float kScaleFactor = 1.0f;

  template <class Codes>
  static __m256i Stored(__m256i codes) {
    return _mm256_add_epi8(codes, _mm256_set1_epi8(static_cast<char>(128 - Codes::kBias)));
  }
};

template <class /*Codes*/, int /*kLines*/>
using StripProducts = StoredLines;
template <class /*Codes*/>
constexpr bool kHasStrips = true;

// How panels hold a format with one scale per row for kScaleValues columns.
template <bool kOffsets, int kScaleValues>
struct PanelTraits : StoredLines {
  static constexpr bool kHasOffsets = kOffsets;
  static constexpr int kScales = 32 / kScaleValues;
  static constexpr bool kWide = false;
  // Vectors of a block: before the first scale, from one scale to the next, altogether.
  static constexpr int kCodes = 8 * kPanelVectors;
  static constexpr int kScaleStride = (kHasOffsets ? 3 : 2) * kPanelVectors;
  static constexpr int kBlock = kCodes + kScales * kScaleStride;
  // From the activations of a block to those of the next, in bytes.
  static constexpr int kCodeStep = 32;
  static constexpr int kScaleStep = 4;
  static constexpr int kSumStep = 4 * kScales;

  // Columns 4 * line to 4 * line + 3 of eight rows.
  template <class Codes>
  static void PutLine(__m256i codes, int64_t line, __m256i* block) {
    block[line * kPanelVectors] = Stored<Codes>(codes);
  }
};

template <class Unpacker>
using PanelTraitsOf = PanelTraits<Unpacker::Codes::kHasOffsets, Unpacker::kScaleValues>;

template <class Unpacker>
using PanelLinesOf = PanelLines<PanelTraitsOf<Unpacker>, typename Unpacker::Codes>;

constexpr int kPanelBlockMax = PanelTraits<true, 16>::kBlock;

// clang-format off
#define KVANT_START(scale, record, sum0, sum1) \
  "vpbroadcastd 4*" #scale "(%%" #record ", %[starts]), %%ymm" #sum0 "\n\t" \
  "vmovdqa %%ymm" #sum0 ", %%ymm" #sum1 "\n\t"
#define KVANT_PRODUCTS(line, record, sum0, sum1) \
  "vpbroadcastd 4*" #line "(%%" #record ", %[codes]), %%ymm14\n\t" \
  KVANT_VPDPBUSD "%%ymm14, %%ymm12, %%ymm" #sum0 "\n\t" \
  KVANT_VPDPBUSD "%%ymm14, %%ymm13, %%ymm" #sum1 "\n\t"

#define KVANT_STARTS(scale) KVANT_FOR_TOKENS(KVANT_START, scale)
#define KVANT_LINE(line) KVANT_LOAD_LINE(line) KVANT_FOR_TOKENS(KVANT_PRODUCTS, line)
#define KVANT_LINES_0_TO_3 KVANT_LINE(0) KVANT_LINE(1) KVANT_LINE(2) KVANT_LINE(3)
#define KVANT_LINES_4_TO_7 KVANT_LINE(4) KVANT_LINE(5) KVANT_LINE(6) KVANT_LINE(7)
#define KVANT_TILE_CONSTANTS
// clang-format on

// totals[kPanelTokens][kPanelVectors] += `blocks` (at least 1) blocks of a panel times the tokens
// of a tile.
template <class Traits>
[[gnu::noinline]] void MultiplyTile(const __m256* panel, int64_t blocks, const TileTokens& tokens,
                                    PanelActivations at, __m256* totals) {
  const std::byte* const* records = tokens.records;
  static_assert(Traits::kCodes == 16 && kPanelTokens == 6 && kPanelVectors == 2);
  if constexpr (Traits::kScales == 1 && !Traits::kHasOffsets) {
    KVANT_MULTIPLY_TILE(KVANT_STARTS(0) KVANT_LINES_0_TO_3 KVANT_LINES_4_TO_7 KVANT_FLUSH(16));
  } else if constexpr (Traits::kScales == 1) {
    KVANT_MULTIPLY_TILE(KVANT_STARTS(0)
                            KVANT_LINES_0_TO_3 KVANT_LINES_4_TO_7 KVANT_FLUSH_WITH_OFFSETS(0, 16));
  } else if constexpr (!Traits::kHasOffsets) {
    KVANT_MULTIPLY_TILE(KVANT_STARTS(0) KVANT_LINES_0_TO_3 KVANT_FLUSH(16) KVANT_STARTS(1)
                            KVANT_LINES_4_TO_7 KVANT_FLUSH(20));
  } else {
    KVANT_MULTIPLY_TILE(KVANT_STARTS(0) KVANT_LINES_0_TO_3 KVANT_FLUSH_WITH_OFFSETS(0, 16)
                            KVANT_STARTS(1) KVANT_LINES_4_TO_7 KVANT_FLUSH_WITH_OFFSETS(1, 22));
  }
}
