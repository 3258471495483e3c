// The kernel of strips in AVX-512 VNNI. Included inside the target region of matmul.cpp, after
// int8_panel.inl, whose registers and instructions it shares, strip_operands.inl and
// strip_layout.inl.
//
// A tile is 32 rows by four to six tokens. It sums up a track of the strip in registers, then the
// next. Between strips the sums of tracks are in memory; those of the last are added in the order
// in which Sum() of int8_blocks.inl adds lanes. An item ends in three operations, those of
// AddScaled() there: a conversion (the integer sum starts at the bits of kDotOrigin, so that it is
// a subtraction of floats), the product of both scales, an FMA.

// clang-format off
#define KVANT_STRIP_TOKENS_4(op) \
  op(r8, 12, 13, 0, 1) op(r9, 14, 15, 2, 3) op(r10, 16, 17, 4, 5) op(r11, 18, 19, 6, 7)
#define KVANT_STRIP_TOKENS_5(op) KVANT_STRIP_TOKENS_4(op) op(r12, 20, 21, 8, 9)
#define KVANT_STRIP_TOKENS_6(op) KVANT_STRIP_TOKENS_5(op) op(r13, 22, 23, 10, 11)

#define KVANT_STRIP_ZERO(record, dot0, dot1, total0, total1) \
  "vpxord %%zmm" #total0 ", %%zmm" #total0 ", %%zmm" #total0 "\n\t" \
  "vpxord %%zmm" #total1 ", %%zmm" #total1 ", %%zmm" #total1 "\n\t"
#define KVANT_STRIP_LOAD(record, dot0, dot1, total0, total1) \
  KVANT_LOAD_TOTAL(total0) KVANT_LOAD_TOTAL(total1)
#define KVANT_STRIP_START(record, dot0, dot1, total0, total1) KVANT_START(0, record, dot0, dot1)
#define KVANT_STRIP_ADD(record, dot0, dot1, total0, total1) \
  "vaddps 64*" #total0 "(%%rax), %%zmm" #total0 ", %%zmm" #total0 "\n\t" \
  "vaddps 64*" #total1 "(%%rax), %%zmm" #total1 ", %%zmm" #total1 "\n\t"
#define KVANT_STRIP_STORE(record, dot0, dot1, total0, total1) \
  KVANT_STORE_TOTAL(total0) KVANT_STORE_TOTAL(total1)

#define KVANT_STRIP_WEIGHTS(line) \
  "vmovdqa64 128*" #line "(%[items]), %%zmm24\n\t" \
  "vmovdqa64 128*" #line "+64(%[items]), %%zmm25\n\t"
#define KVANT_STRIP_LINE_4(line) \
  KVANT_STRIP_WEIGHTS(line) \
  KVANT_BROADCAST(line, r8, 26) KVANT_BROADCAST(line, r9, 27) \
  KVANT_PRODUCTS(26, 12, 13) KVANT_BROADCAST(line, r10, 28) \
  KVANT_PRODUCTS(27, 14, 15) KVANT_BROADCAST(line, r11, 29) \
  KVANT_PRODUCTS(28, 16, 17) KVANT_PRODUCTS(29, 18, 19)
#define KVANT_STRIP_LINE_5(line) \
  KVANT_STRIP_WEIGHTS(line) \
  KVANT_BROADCAST(line, r8, 26) KVANT_BROADCAST(line, r9, 27) \
  KVANT_PRODUCTS(26, 12, 13) KVANT_BROADCAST(line, r10, 28) \
  KVANT_PRODUCTS(27, 14, 15) KVANT_BROADCAST(line, r11, 29) \
  KVANT_PRODUCTS(28, 16, 17) KVANT_BROADCAST(line, r12, 30) \
  KVANT_PRODUCTS(29, 18, 19) KVANT_PRODUCTS(30, 20, 21)
#define KVANT_STRIP_LINE_6(line) \
  KVANT_STRIP_WEIGHTS(line) \
  KVANT_BROADCAST(line, r8, 26) KVANT_BROADCAST(line, r9, 27) \
  KVANT_PRODUCTS(26, 12, 13) KVANT_BROADCAST(line, r10, 28) \
  KVANT_PRODUCTS(27, 14, 15) KVANT_BROADCAST(line, r11, 29) \
  KVANT_PRODUCTS(28, 16, 17) KVANT_BROADCAST(line, r12, 30) \
  KVANT_PRODUCTS(29, 18, 19) KVANT_BROADCAST(line, r13, 26) \
  KVANT_PRODUCTS(30, 20, 21) KVANT_PRODUCTS(26, 22, 23)
#define KVANT_STRIP_LINES_4(line) line(0) line(1) line(2) line(3)
#define KVANT_STRIP_LINES_8(line) \
  KVANT_STRIP_LINES_4(line) line(4) line(5) line(6) line(7)

// total += (dot - origin) * (scale * the activations' scale)
#define KVANT_STRIP_SCALE(record, dot0, dot1, total0, total1) \
  "vbroadcastss (%%" #record ", %[scales]), %%zmm28\n\t" \
  "vsubps %%zmm31, %%zmm" #dot0 ", %%zmm" #dot0 "\n\t" \
  "vsubps %%zmm31, %%zmm" #dot1 ", %%zmm" #dot1 "\n\t" \
  "vmulps %%zmm28, %%zmm24, %%zmm29\n\t" \
  "vmulps %%zmm28, %%zmm25, %%zmm30\n\t" \
  "vfmadd231ps %%zmm29, %%zmm" #dot0 ", %%zmm" #total0 "\n\t" \
  "vfmadd231ps %%zmm30, %%zmm" #dot1 ", %%zmm" #total1 "\n\t"
// total -= offset * (sum of the activations)
#define KVANT_STRIP_OFFSET(record, dot0, dot1, total0, total1) \
  "vbroadcastss (%%" #record ", %[sums]), %%zmm28\n\t" \
  "vfnmadd231ps %%zmm28, %%zmm26, %%zmm" #total0 "\n\t" \
  "vfnmadd231ps %%zmm28, %%zmm27, %%zmm" #total1 "\n\t"
#define KVANT_STRIP_SCALES(at) \
  "vmovaps 64*" #at "(%[items]), %%zmm24\n\t" "vmovaps 64*" #at "+64(%[items]), %%zmm25\n\t"
#define KVANT_STRIP_OFFSETS(at) \
  "vmovaps 64*" #at "(%[items]), %%zmm26\n\t" "vmovaps 64*" #at "+64(%[items]), %%zmm27\n\t"

#define KVANT_MULTIPLY_TRACK(tokens, item) \
  asm volatile( \
      tokens(KVANT_STRIP_ZERO) \
      "mov %[from], %%rax\n\t" \
      "test %%rax, %%rax\n\t" \
      "jz 0f\n\t" \
      tokens(KVANT_STRIP_LOAD) \
      "0:\n\t" \
      "mov %[records], %%rax\n\t" \
      "mov (%%rax), %%r8\n\t" "mov 8(%%rax), %%r9\n\t" "mov 16(%%rax), %%r10\n\t" \
      "mov 24(%%rax), %%r11\n\t" "mov 32(%%rax), %%r12\n\t" "mov 40(%%rax), %%r13\n\t" \
      "vbroadcastss %[origin], %%zmm31\n\t" \
      "mov %[count], %%rax\n\t" \
      "test %%rax, %%rax\n\t" \
      "jz 2f\n\t" \
      ".p2align 5\n1:\n\t" \
      item \
      "add %[item_bytes], %[items]\n\t" \
      "add %[code_bytes], %[codes]\n\t" \
      "add %[scale_bytes], %[scales]\n\t" \
      "add $64, %[starts]\n\t" \
      "add $64, %[sums]\n\t" \
      "dec %%rax\n\t" \
      "jnz 1b\n2:\n\t" \
      "mov %[to], %%rax\n\t" \
      "cmpq $0, %[adds]\n\t" \
      "jz 4f\n3:\n\t" \
      "sub %[level_bytes], %%rax\n\t" \
      tokens(KVANT_STRIP_ADD) \
      "decq %[adds]\n\t" \
      "jnz 3b\n4:\n\t" \
      tokens(KVANT_STRIP_STORE) \
      : [items] "+r"(items), [codes] "+r"(at.codes), [scales] "+r"(at.scales), \
        [starts] "+r"(at.starts), [sums] "+r"(at.sums), [adds] "+m"(adds) \
      : [count] "m"(count), [records] "m"(records), [from] "m"(from), [to] "m"(to), \
        [origin] "m"(kDotOrigin), \
        [item_bytes] "i"(64 * Traits::kItem), [code_bytes] "i"(16 * Traits::kItemColumns), \
        [scale_bytes] "i"(2 * Traits::kItemColumns), \
        [level_bytes] "i"(64 * kTrackSums) \
      : "memory", "cc", "rax", "r8", "r9", "r10", "r11", "r12", "r13", \
        "zmm0", "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10", \
        "zmm11", "zmm12", "zmm13", "zmm14", "zmm15", "zmm16", "zmm17", "zmm18", "zmm19", "zmm20", \
        "zmm21", "zmm22", "zmm23", "zmm24", "zmm25", "zmm26", "zmm27", "zmm28", "zmm29", "zmm30", \
        "zmm31")

// One item of a format: the starts, the products, the ends.
#define KVANT_STRIP_ITEM(n, lines, ends) \
  KVANT_MULTIPLY_TRACK(KVANT_STRIP_TOKENS_##n, \
                      KVANT_STRIP_TOKENS_##n(KVANT_STRIP_START) \
                      KVANT_STRIP_LINES_##lines(KVANT_STRIP_LINE_##n) ends)
#define KVANT_STRIP_SCALED(n, at) \
  KVANT_STRIP_SCALES(at) KVANT_STRIP_TOKENS_##n(KVANT_STRIP_SCALE)
#define KVANT_STRIP_SHIFTED(n, at, offsets_at) \
  KVANT_STRIP_OFFSETS(offsets_at) KVANT_STRIP_SCALED(n, at) \
  KVANT_STRIP_TOKENS_##n(KVANT_STRIP_OFFSET)
#define KVANT_STRIP_OF_TOKENS(n) \
  if constexpr (Traits::kItemColumns == 32 && !Traits::kHasOffsets) { \
    KVANT_STRIP_ITEM(n, 8, KVANT_STRIP_SCALED(n, 16)); \
  } else if constexpr (Traits::kItemColumns == 32) { \
    KVANT_STRIP_ITEM(n, 8, KVANT_STRIP_SHIFTED(n, 16, 18)); \
  } else if constexpr (!Traits::kHasOffsets) { \
    KVANT_STRIP_ITEM(n, 4, KVANT_STRIP_SCALED(n, 8)); \
  } else { \
    KVANT_STRIP_ITEM(n, 4, KVANT_STRIP_SHIFTED(n, 8, 10)); \
  }

// The sums of a track += `count` of its items times the tokens of a tile, whose activations are
// `at` in their records.
template <class Traits, int kTokens>
[[gnu::always_inline]] inline void MultiplyTrack(const __m512* items, int64_t count,
                                                 const TileTokens& tokens, PanelActivations at,
                                                 const TrackSums& sums) {
  const std::byte* const* records = tokens.records;
  const __m512* from = sums.from;
  __m512* to = sums.to;
  int64_t adds = sums.adds;
  // The numbers of lines and the places of scales in KVANT_STRIP_OF_TOKENS.
  static_assert(kPanelTokens == 6 && kPanelVectors == 2);
  static_assert(Traits::kCodes == (Traits::kItemColumns == 32 ? 16 : 8));
  if constexpr (kTokens == 4) {
    KVANT_STRIP_OF_TOKENS(4)
  } else if constexpr (kTokens == 5) {
    KVANT_STRIP_OF_TOKENS(5)
  } else {
    static_assert(kTokens == 6);
    KVANT_STRIP_OF_TOKENS(6)
  }
}
// clang-format on
