// What a tile does with a block of a panel, for each way in which int8_panel.inl holds codes: the
// body of a function of `panel`, `blocks`, `tokens`, `at` and `totals` that is a template of
// Traits. KVANT_FLUSH and KVANT_FLUSH_WITH_OFFSETS say how integers are added to the totals.

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
