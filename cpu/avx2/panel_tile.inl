// The parts that the panels of AVX2 and AVX-VNNI have in common: eight rows per vector, two vectors
// of rows, six tokens per tile. Included inside the target region of matmul.cpp, after
// int8_blocks.inl and panel_operands.inl and before int8_panel.inl, which says how the integer dot
// products are made.
//
// A lane belongs to one output row, so sums never cross lanes. For every four columns there is one
// line of codes per eight rows, which meets the four activations of a token, broadcast from where
// the quantizer put them.
//
// Block of 32 columns and 16 rows, Traits::kBlock vectors:
//   codes    [][2] lines, Traits::kCodes vectors
//   for each scale of a row (one, or two of 16 columns each):
//     scales   [2] vectors of floats
//     origins  [2] kDotOrigin * scale, exactly
//     offsets  [2] where the format has them
//
// The kernels are written in assembler: 16 registers are just enough, and GCC 12 spills many of the
// sums of the same loop in intrinsics. Vector v of token t has its sums in ymm(2t + v), first of
// integers, then of floats, whose totals pass through the first-level cache. Weights are in ymm12
// and ymm13, ymm14 and ymm15 hold what is broadcast and products, r8 to r13 the tokens' records.

// Rows of a vector, vectors of rows, tokens of a tile.
constexpr int64_t kPanelLanes = 8;
constexpr int kPanelVectors = 2;
constexpr int kPanelTokens = 6;
constexpr int64_t kPassTokensAim = 256;
constexpr int64_t kPassPanels = 8;
using TileTokens = TokenRecords<kPanelTokens>;

// clang-format off
#define KVANT_FOR_4_TOKENS(op, argument) \
  op(argument, r8, 0, 1) op(argument, r9, 2, 3) op(argument, r10, 4, 5) op(argument, r11, 6, 7)
#define KVANT_FOR_5_TOKENS(op, argument) KVANT_FOR_4_TOKENS(op, argument) op(argument, r12, 8, 9)
#define KVANT_FOR_6_TOKENS(op, argument) KVANT_FOR_5_TOKENS(op, argument) op(argument, r13, 10, 11)

// strip_tile.inl redefines the next four macros for strips.
#define KVANT_FOR_TOKENS KVANT_FOR_6_TOKENS
#define KVANT_SCALE KVANT_SCALE_EXACTLY
#define KVANT_OFFSETS_AFTER "+4"
#define KVANT_SCALE_CONSTANTS

// A line's codes, or other two vectors of the block.
#define KVANT_LOAD_LINE(line) \
  "vmovdqa 64*(" #line ")(%[panel]), %%ymm12\n\t" \
  "vmovdqa 64*(" #line ")+32(%[panel]), %%ymm13\n\t"

// total += (dot * scale - origin) * (the activations' scale). An integer sum becomes a float
// without a conversion: it starts at the bits of kDotOrigin, so that read as a float it is
// kDotOrigin + dot, exactly. `at` vectors into the block are the scales, then the origins.
#define KVANT_SCALE_EXACTLY(at, record, sum0, sum1) \
  "vbroadcastss (%%" #record ", %[scales]), %%ymm14\n\t" \
  "vfmsub213ps 32*(" #at "+2)(%[panel]), %%ymm12, %%ymm" #sum0 "\n\t" \
  "vfmsub213ps 32*(" #at "+3)(%[panel]), %%ymm13, %%ymm" #sum1 "\n\t" \
  "vfmadd213ps 32*" #sum0 "(%[totals]), %%ymm14, %%ymm" #sum0 "\n\t" \
  "vfmadd213ps 32*" #sum1 "(%[totals]), %%ymm14, %%ymm" #sum1 "\n\t"
#define KVANT_STORE_TOTALS(unused, record, sum0, sum1) \
  "vmovaps %%ymm" #sum0 ", 32*" #sum0 "(%[totals])\n\t" \
  "vmovaps %%ymm" #sum1 ", 32*" #sum1 "(%[totals])\n\t"
#define KVANT_FLUSH(at) \
  "vmovaps 32*(" #at ")(%[panel]), %%ymm12\n\t" \
  "vmovaps 32*(" #at "+1)(%[panel]), %%ymm13\n\t" \
  KVANT_FOR_TOKENS(KVANT_SCALE, at) KVANT_FOR_TOKENS(KVANT_STORE_TOTALS, 0)

// total -= offset * (sum of the activations)
#define KVANT_OFFSET(scale, record, sum0, sum1) \
  "vbroadcastss 4*" #scale "(%%" #record ", %[sums]), %%ymm14\n\t" \
  "vfnmadd231ps %%ymm14, %%ymm12, %%ymm" #sum0 "\n\t" \
  "vfnmadd231ps %%ymm14, %%ymm13, %%ymm" #sum1 "\n\t"
#define KVANT_FLUSH_WITH_OFFSETS(scale, at) \
  "vmovaps 32*(" #at ")(%[panel]), %%ymm12\n\t" \
  "vmovaps 32*(" #at "+1)(%[panel]), %%ymm13\n\t" \
  KVANT_FOR_TOKENS(KVANT_SCALE, at) \
  "vmovaps 32*(" #at KVANT_OFFSETS_AFTER ")(%[panel]), %%ymm12\n\t" \
  "vmovaps 32*(" #at KVANT_OFFSETS_AFTER ")+32(%[panel]), %%ymm13\n\t" \
  KVANT_FOR_TOKENS(KVANT_OFFSET, scale) KVANT_FOR_TOKENS(KVANT_STORE_TOTALS, 0)

// The body of MultiplyTile, a block of 32 columns after the other; a tile's constants are read from
// variables of these names.
#define KVANT_MULTIPLY_TILE(block) \
  asm volatile( \
      "mov %[records], %%rax\n\t" \
      "mov (%%rax), %%r8\n\t" "mov 8(%%rax), %%r9\n\t" "mov 16(%%rax), %%r10\n\t" \
      "mov 24(%%rax), %%r11\n\t" "mov 32(%%rax), %%r12\n\t" "mov 40(%%rax), %%r13\n\t" \
      ".p2align 5\n1:\n\t" \
      block \
      "add %[block_bytes], %[panel]\n\t" \
      "add %[code_bytes], %[codes]\n\t" \
      "add %[scale_bytes], %[scales]\n\t" \
      "add %[sum_bytes], %[starts]\n\t" \
      "add %[sum_bytes], %[sums]\n\t" \
      "decq %[blocks]\n\t" \
      "jnz 1b\n\t" \
      : [panel] "+r"(panel), [codes] "+r"(at.codes), [scales] "+r"(at.scales), \
        [starts] "+r"(at.starts), [sums] "+r"(at.sums), [blocks] "+m"(blocks) \
      : [totals] "r"(totals), [records] "m"(records), KVANT_TILE_CONSTANTS KVANT_SCALE_CONSTANTS \
        [block_bytes] "i"(32 * Traits::kBlock), [code_bytes] "i"(Traits::kCodeStep), \
        [scale_bytes] "i"(Traits::kScaleStep), [sum_bytes] "i"(Traits::kSumStep) \
      : "memory", "cc", "rax", "r8", "r9", "r10", "r11", "r12", "r13", \
        "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", \
        "ymm11", "ymm12", "ymm13", "ymm14", "ymm15")
// clang-format on

// ---- Packing ------------------------------------------------------------------------------------

// kDotOrigin times a scale is exact because the scale's last two bits are zero and it is at most
// 2^104. No format has scales of more than 22 bits, only MXFP4 has larger finite ones, and this
// makes sure: with an infinite origin even a block of zeros would give NaN. A NaN stays one.
inline __m256 PanelScales(__m256 scales) {
  const __m256 exact = _mm256_and_ps(scales, _mm256_castsi256_ps(_mm256_set1_epi32(~3)));
  const __m256 at_most = _mm256_min_ps(_mm256_set1_ps(0x1p104f), exact);
  return _mm256_max_ps(_mm256_set1_ps(-0x1p104f), at_most);
}

// Where vector `v` of eight blocks of a panel goes: cpu/generic/pack_rows.inl.
template <class Traits, class Codes>
class PanelLines {
 public:
  using Group = __m256i*;

  PanelLines(int64_t v, __m256* panel) : vectors_(reinterpret_cast<__m256i*>(panel) + v) {}

  [[gnu::always_inline]] Group BeginGroup(int pair, int half, const RowScales& rows) const {
    const Group block = vectors_ + pair * Traits::kBlock;
    if (half >= Traits::kScales) return block;
    __m256* out = reinterpret_cast<__m256*>(block + Traits::kCodes + half * Traits::kScaleStride);
    out[0] = _mm256_mul_ps(PanelScales(rows.scales), _mm256_set1_ps(Traits::kScaleFactor));
    out[kPanelVectors] = _mm256_mul_ps(out[0], _mm256_set1_ps(kDotOrigin));
    if constexpr (Traits::kHasOffsets) out[2 * kPanelVectors] = rows.offsets;
    return block;
  }
  [[gnu::always_inline]] void Put(Group block, int line, __m256i codes) const {
    Traits::template PutLine<Codes>(codes, line, block);
  }

 private:
  __m256i* vectors_;
};

// The group of 16 columns, or the pair of groups, that a lane of one of a block's vectors of scales
// belongs to.
constexpr int GroupOfLane(int half, int lane) { return 8 * half + lane % 4 * 2 + lane / 4; }
constexpr int PairOfLane(int lane) { return lane % 4 * 2 + lane / 4; }

// One block of 256 columns of eight rows, in an order of int8_blocks.inl, to lines of a panel or
// strip.
template <class Codes, class Lines>
[[gnu::always_inline]] inline void PackLanes(const WeightBlock* rows, const Lines& lines) {
  constexpr bool kGroups = Codes::kOrder == LaneOrder::kGroups;
  static_assert(kGroups || Codes::kOrder == LaneOrder::kPairs);
  typename Lines::Group groups[16];
  for (int h = 0; h < (kGroups ? 2 : 1); ++h) {
    __m256i scales[kPanelLanes];
    __m256i offsets[kPanelLanes];
    for (int64_t r = 0; r < kPanelLanes; ++r) {
      scales[r] = _mm256_castps_si256(rows[r].scales[h]);
      if (Codes::kHasOffsets) offsets[r] = _mm256_castps_si256(rows[r].offsets[h]);
    }
    TransposeLanes(scales);
    if (Codes::kHasOffsets) TransposeLanes(offsets);
    for (int lane = 0; lane < kPanelLanes; ++lane) {
      RowScales of_rows = {_mm256_castsi256_ps(scales[lane])};
      if (Codes::kHasOffsets) of_rows.offsets = _mm256_castsi256_ps(offsets[lane]);
      if constexpr (kGroups) {
        const int group = GroupOfLane(h, lane);
        groups[group] = lines.BeginGroup(group / 2, group % 2, of_rows);
      } else {
        const int pair = PairOfLane(lane);
        for (int i = 0; i < 2; ++i) groups[2 * pair + i] = lines.BeginGroup(pair, i, of_rows);
      }
    }
  }
  for (int i = 0; i < 8; ++i) {
    __m256i lanes[kPanelLanes];
    for (int64_t r = 0; r < kPanelLanes; ++r) lanes[r] = rows[r].codes[i];
    TransposeLanes(lanes);
    for (int lane = 0; lane < kPanelLanes; ++lane) {
      // Vectors 4h to 4h + 3 hold the fours of half h's groups, 2i and 2i + 1 those of two pairs.
      const int group = kGroups ? GroupOfLane(i / 4, lane) : i / 2 * 4 + lane / 4 * 2 + i % 2;
      const int four = kGroups ? i % 4 : lane % 4;
      lines.Put(groups[group], group % 2 * 4 + four, lanes[lane]);
    }
  }
}

template <class Traits, class Codes>
void PackBlock(WeightBlock* rows, int64_t v, __m256* panel) {
  PackLanes<Codes>(rows, PanelLines<Traits, Codes>(v, panel));
}

inline WeightBlock ZeroBlock() {
  WeightBlock block;
  for (__m256i& codes : block.codes) codes = _mm256_setzero_si256();
  for (__m256& scales : block.scales) scales = _mm256_setzero_ps();
  for (__m256& offsets : block.offsets) offsets = _mm256_setzero_ps();
  return block;
}

// out[0..rows) = (or +=) the lanes of `sums`, at most all; nothing where rows <= 0.
inline void StoreLanes(__m256 sums, int64_t rows, Store store, float* out) {
  if (rows >= kPanelLanes) {  // masked stores take tens of cycles on some CPUs
    if (store == Store::kAdd) sums = _mm256_add_ps(_mm256_loadu_ps(out), sums);
    _mm256_storeu_ps(out, sums);
    return;
  }
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const int count = static_cast<int>(std::max<int64_t>(rows, 0));
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lane);
  if (store == Store::kAdd) sums = _mm256_add_ps(_mm256_maskload_ps(out, mask), sums);
  _mm256_maskstore_ps(out, mask, sums);
}
