// The records of activations that tiles of products with 64 and more tokens read beside the
// weights. An instruction set includes this file before its own panels.

// Where in an activation record the arrays lie that a format's panels are multiplied with, in bytes
// from its beginning. A row of weights has one or two scales in a block of 32 columns.
struct PanelActivations {
  int64_t codes, scales, starts, sums;
  int64_t halves;  // in bfloat16, of instruction sets that multiply these

  static PanelActivations Of(const MatMulTask& task, int scales_per_block) {
    std::byte* base = const_cast<std::byte*>(task.activations);
    const ActivationRow row = ActivationRowAt(base, task.cols);
    const bool pairs = scales_per_block == 1;
    const void* starts = pairs ? row.pair_starts : row.starts;
    const void* sums = pairs ? row.pair_sums : row.sums;
    return {reinterpret_cast<std::byte*>(row.codes) - base,
            reinterpret_cast<std::byte*>(row.scales) - base,
            static_cast<const std::byte*>(starts) - base,
            static_cast<const std::byte*>(sums) - base,
            reinterpret_cast<std::byte*>(row.halves) - base};
  }

  // The places of the arrays from a later block of 32 columns on.
  PanelActivations From(int64_t block, int scales_per_block) const {
    const int64_t scale_bytes = scales_per_block * int64_t{sizeof(float)};
    return {codes + 32 * block, scales + 4 * block, starts + scale_bytes * block,
            sums + scale_bytes * block, halves + 64 * block};
  }
};

// Blocks of 256 columns of a panel, and from a token's codes to the next's where they have 16 bits.
constexpr int64_t kPanelDepth = 2;
constexpr int64_t kWideTokenValues = 256 * kPanelDepth;
constexpr int64_t kWideTokenBytes = kWideTokenValues * sizeof(int16_t);

// The activation records of a tile's tokens. The last token stands in for missing ones.
template <int kTokens>
struct TokenRecords {
  const std::byte* records[kTokens];
  // The codes of all in 16 bits, kWideTokenBytes apart, for panels with Traits::kWide.
  const int16_t* wide_codes = nullptr;

  TokenRecords() = default;
  TokenRecords(const MatMulTask& task, int64_t token) {
    for (int64_t t = 0; t < kTokens; ++t) {
      records[t] = task.activations + std::min(token + t, task.tokens - 1) * task.activation_stride;
    }
  }

  // The codes of `columns` columns, `at` bytes into each record, in 16 bits. A multiple of 32.
  void Widen(int64_t at, int64_t columns, int16_t* out) const {
    for (int t = 0; t < kTokens; ++t) {
      const auto* codes = reinterpret_cast<const int8_t*>(records[t] + at);
      for (int64_t i = 0; i < columns; i += 32) {
        for (int64_t j = i; j < i + 32; ++j) out[t * kWideTokenValues + j] = codes[j];
      }
    }
  }
};

// The scales that a group of columns of a vector's rows is multiplied with, and the offsets that
// are subtracted.
struct RowScales {
  Accumulator scales;
  Accumulator offsets = Zero();
};

// The traits of a format's codes, which are less than 2^kBits, that the lines of panels and strips
// need. A format overrides the traits that differ.
struct RowCodes {
  static constexpr int kBits = 7;  // 7 or 8
  static constexpr int kBias = 0;
  static constexpr bool kHasOffsets = false;
  static constexpr int kScaleValues = 32;
  // Whether (2^(kBits or 15) + kBias) * scale is exact in a float.
  static constexpr bool kShortScales = false;
};
