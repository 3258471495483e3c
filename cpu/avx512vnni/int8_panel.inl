// Products of panels with 64 and more tokens in AVX-512 VNNI. Included inside the target region of
// matmul.cpp, after panel_layout.inl and panel_operands.inl.
//
// VPDPBUSD multiplies a line of codes with the four activations of a token, which are broadcast
// from where the quantizer put them. A tile of 32 rows by 6 tokens has 12 independent chains of
// products in flight, each line loaded serves 6 tokens and each broadcast 32 rows.

constexpr int kPanelTokens = 6;
constexpr int64_t kPassTokensAim = 256;
constexpr int64_t kPassPanels = 8;
using TileTokens = TokenRecords<kPanelTokens>;

// The kernel is written in assembler: compilers keep some of its 24 sums in memory, and where each
// broadcast stands among the products is worth a tenth of its speed.
//
// An integer sum becomes a float without a conversion: it starts at the bits of kDotOrigin, so that
// read as a float it is kDotOrigin + dot, exactly. One FMA then applies the weights' scale and
// takes the origin away, one the activations' scale. Ten vector operations, eight of which are
// products, serve 32 columns of 16 rows.
//
// Vector v of token t has its float total in zmm(2t + v) and its dots in zmm(12 + 2t + v). Weights
// are in zmm24 and zmm25, zmm26 to zmm31 hold what is broadcast, r8 to r13 the tokens' records.

// clang-format off
#define KVANT_FOR_TOTALS(op) \
  op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11)
#define KVANT_LOAD_TOTAL(i) "vmovaps 64*" #i "(%%rax), %%zmm" #i "\n\t"
#define KVANT_STORE_TOTAL(i) "vmovaps %%zmm" #i ", 64*" #i "(%%rax)\n\t"

#define KVANT_START(scale, record, dot0, dot1) \
  "vpbroadcastd 4*" #scale "(%%" #record ", %[starts]), %%zmm" #dot0 "\n\t" \
  "vmovdqa64 %%zmm" #dot0 ", %%zmm" #dot1 "\n\t"
#define KVANT_STARTS(scale) \
  KVANT_START(scale, r8, 12, 13) KVANT_START(scale, r9, 14, 15) \
  KVANT_START(scale, r10, 16, 17) KVANT_START(scale, r11, 18, 19) \
  KVANT_START(scale, r12, 20, 21) KVANT_START(scale, r13, 22, 23)

#define KVANT_BROADCAST(line, record, reg) \
  "vpbroadcastd 4*" #line "(%%" #record ", %[codes]), %%zmm" #reg "\n\t"
#define KVANT_PRODUCTS(reg, dot0, dot1) \
  "vpdpbusd %%zmm" #reg ", %%zmm24, %%zmm" #dot0 "\n\t" \
  "vpdpbusd %%zmm" #reg ", %%zmm25, %%zmm" #dot1 "\n\t"
#define KVANT_LINE(line) \
  "vmovdqa64 128*" #line "(%[panel]), %%zmm24\n\t" \
  "vmovdqa64 128*" #line "+64(%[panel]), %%zmm25\n\t" \
  KVANT_BROADCAST(line, r8, 26) KVANT_BROADCAST(line, r9, 27) \
  KVANT_PRODUCTS(26, 12, 13) KVANT_BROADCAST(line, r10, 28) \
  KVANT_PRODUCTS(27, 14, 15) KVANT_BROADCAST(line, r11, 29) \
  KVANT_PRODUCTS(28, 16, 17) KVANT_BROADCAST(line, r12, 30) \
  KVANT_PRODUCTS(29, 18, 19) KVANT_BROADCAST(line, r13, 31) \
  KVANT_PRODUCTS(30, 20, 21) KVANT_PRODUCTS(31, 22, 23)
#define KVANT_LINES_0_TO_3 KVANT_LINE(0) KVANT_LINE(1) KVANT_LINE(2) KVANT_LINE(3)
#define KVANT_LINES_4_TO_7 KVANT_LINE(4) KVANT_LINE(5) KVANT_LINE(6) KVANT_LINE(7)

// total += (dot * scale - origin) * (the activations' scale); `at` vectors into the block
#define KVANT_FLUSH(record, reg, dot0, dot1, total0, total1) \
  "vbroadcastss (%%" #record ", %[scales]), %%zmm" #reg "\n\t" \
  "vfmsub213ps %%zmm26, %%zmm24, %%zmm" #dot0 "\n\t" \
  "vfmsub213ps %%zmm27, %%zmm25, %%zmm" #dot1 "\n\t" \
  "vfmadd231ps %%zmm" #reg ", %%zmm" #dot0 ", %%zmm" #total0 "\n\t" \
  "vfmadd231ps %%zmm" #reg ", %%zmm" #dot1 ", %%zmm" #total1 "\n\t"
#define KVANT_FLUSH_ALL(at) \
  "vmovaps 64*" #at "(%[panel]), %%zmm24\n\t" \
  "vmovaps 64*(" #at "+1)(%[panel]), %%zmm25\n\t" \
  "vmovaps 64*(" #at "+2)(%[panel]), %%zmm26\n\t" \
  "vmovaps 64*(" #at "+3)(%[panel]), %%zmm27\n\t" \
  KVANT_FLUSH(r8, 28, 12, 13, 0, 1) KVANT_FLUSH(r9, 29, 14, 15, 2, 3) \
  KVANT_FLUSH(r10, 30, 16, 17, 4, 5) KVANT_FLUSH(r11, 31, 18, 19, 6, 7) \
  KVANT_FLUSH(r12, 28, 20, 21, 8, 9) KVANT_FLUSH(r13, 29, 22, 23, 10, 11)

// total -= offset * (sum of the activations)
#define KVANT_OFFSET(scale, record, reg, total0, total1) \
  "vbroadcastss 4*" #scale "(%%" #record ", %[sums]), %%zmm" #reg "\n\t" \
  "vfnmadd231ps %%zmm" #reg ", %%zmm24, %%zmm" #total0 "\n\t" \
  "vfnmadd231ps %%zmm" #reg ", %%zmm25, %%zmm" #total1 "\n\t"
#define KVANT_OFFSETS(scale, at) \
  "vmovaps 64*" #at "(%[panel]), %%zmm24\n\t" \
  "vmovaps 64*(" #at "+1)(%[panel]), %%zmm25\n\t" \
  KVANT_OFFSET(scale, r8, 30, 0, 1) KVANT_OFFSET(scale, r9, 31, 2, 3) \
  KVANT_OFFSET(scale, r10, 26, 4, 5) KVANT_OFFSET(scale, r11, 27, 6, 7) \
  KVANT_OFFSET(scale, r12, 28, 8, 9) KVANT_OFFSET(scale, r13, 29, 10, 11)

#define KVANT_MULTIPLY_TILE(block) \
  asm volatile( \
      "mov %[totals], %%rax\n\t" \
      KVANT_FOR_TOTALS(KVANT_LOAD_TOTAL) \
      "mov %[records], %%rax\n\t" \
      "mov (%%rax), %%r8\n\t" "mov 8(%%rax), %%r9\n\t" "mov 16(%%rax), %%r10\n\t" \
      "mov 24(%%rax), %%r11\n\t" "mov 32(%%rax), %%r12\n\t" "mov 40(%%rax), %%r13\n\t" \
      ".p2align 5\n1:\n\t" \
      block \
      "add %[block_bytes], %[panel]\n\t" \
      "add $32, %[codes]\n\t" \
      "add $4, %[scales]\n\t" \
      "add %[scale_bytes], %[starts]\n\t" \
      "add %[scale_bytes], %[sums]\n\t" \
      "decq %[blocks]\n\t" \
      "jnz 1b\n\t" \
      "mov %[totals], %%rax\n\t" \
      KVANT_FOR_TOTALS(KVANT_STORE_TOTAL) \
      : [panel] "+r"(panel), [codes] "+r"(at.codes), [scales] "+r"(at.scales), \
        [starts] "+r"(at.starts), [sums] "+r"(at.sums), [blocks] "+m"(blocks) \
      : [totals] "m"(totals), [records] "m"(records), \
        [block_bytes] "i"(64 * Traits::kBlock), [scale_bytes] "i"(4 * Traits::kScales) \
      : "memory", "cc", "rax", "r8", "r9", "r10", "r11", "r12", "r13", \
        "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", \
        "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", \
        "zmm21", "zmm22", "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", "zmm28", "zmm29", "zmm30", \
        "zmm31")
// clang-format on

// totals[kPanelTokens][kPanelVectors] += `blocks` (at least 1) blocks of a panel times the tokens
// of a tile.
template <class Traits>
[[gnu::noinline]] void MultiplyTile(const __m512* panel, int64_t blocks, const TileTokens& tokens,
                                    PanelActivations at, __m512* totals) {
  const std::byte* const* records = tokens.records;
  static_assert(Traits::kCodes == 16 && kPanelTokens == 6 && kPanelVectors == 2);
  if constexpr (Traits::kScales == 1 && !Traits::kHasOffsets) {
    KVANT_MULTIPLY_TILE(KVANT_STARTS(0) KVANT_LINES_0_TO_3 KVANT_LINES_4_TO_7 KVANT_FLUSH_ALL(16));
  } else if constexpr (Traits::kScales == 1) {
    KVANT_MULTIPLY_TILE(KVANT_STARTS(0) KVANT_LINES_0_TO_3 KVANT_LINES_4_TO_7 KVANT_FLUSH_ALL(16)
                            KVANT_OFFSETS(0, 20));
  } else if constexpr (!Traits::kHasOffsets) {
    KVANT_MULTIPLY_TILE(KVANT_STARTS(0) KVANT_LINES_0_TO_3 KVANT_FLUSH_ALL(16) KVANT_STARTS(1)
                            KVANT_LINES_4_TO_7 KVANT_FLUSH_ALL(20));
  } else {
    KVANT_MULTIPLY_TILE(KVANT_STARTS(0) KVANT_LINES_0_TO_3 KVANT_FLUSH_ALL(16) KVANT_OFFSETS(
        0, 20) KVANT_STARTS(1) KVANT_LINES_4_TO_7 KVANT_FLUSH_ALL(22) KVANT_OFFSETS(1, 26));
  }
}
