// How a tile of few tokens adds the integers of a scale to the totals: with the operations, in the
// order and so with the bits of int8_blocks.inl, where a vector adds the eight pairs of groups of
// 256 columns at a time. So an output has eight totals, one for each lane of that vector, in the
// order of the pairs. Included inside the target region of matmul.cpp, after int8_panel.inl, in
// whose cases this takes the place of sum_in_order.inl.

// Such panels hold the scales as they are, without origins.
template <class Traits>
struct LanePanelTraits : Traits {
  static constexpr bool kByLanes = true;
};

struct alignas(32) PanelFloats {
  float lanes[8];
  explicit constexpr PanelFloats(float value) : lanes{} {
    for (float& lane : lanes) lane = value;
  }
};

#undef KVANT_FLUSH
#undef KVANT_FLUSH_WITH_OFFSETS
#undef KVANT_NEXT_TOTALS
#undef KVANT_TILE_CONSTANTS

// clang-format off
// total[slot] += dot * (scale * the activations' scale), dot as a float exactly. With a factor it
// is taken off here, so that no scale comes near the smallest numbers.
#define KVANT_ADD_DOTS(at, record, sum0, sum1) \
  "vbroadcastss (%%" #record ", %[scales]), %%ymm14\n\t" \
  "vfmsub213ps %%ymm13, %%ymm12, %%ymm" #sum0 "\n\t" \
  "vfmsub213ps %%ymm13, %%ymm12, %%ymm" #sum1 "\n\t" \
  "vmulps 32*(" #at ")(%[panel]), %%ymm14, %%ymm15\n\t" \
  "vmulps 32*(" #at "+1)(%[panel]), %%ymm14, %%ymm14\n\t" \
  "vfmadd213ps 32*" #sum0 "(%[totals]), %%ymm15, %%ymm" #sum0 "\n\t" \
  "vfmadd213ps 32*" #sum1 "(%[totals]), %%ymm14, %%ymm" #sum1 "\n\t"
#define KVANT_LOAD_UNITS "vmovaps %[inverse], %%ymm12\n\t" "vmovaps %[origins], %%ymm13\n\t"

#define KVANT_FLUSH(at) \
  KVANT_LOAD_UNITS KVANT_FOR_TOKENS(KVANT_ADD_DOTS, at) \
  KVANT_FOR_TOKENS(KVANT_STORE_TOTALS, 0)
#define KVANT_FLUSH_WITH_OFFSETS(scale, at) \
  KVANT_LOAD_UNITS KVANT_FOR_TOKENS(KVANT_ADD_DOTS, at) \
  KVANT_LOAD_SCALES(at+4) KVANT_FOR_TOKENS(KVANT_OFFSET, scale) \
  KVANT_FOR_TOKENS(KVANT_STORE_TOTALS, 0)

#define KVANT_NEXT_TOTALS "add %[slot_bytes], %[totals]\n\t"
#define KVANT_TILE_CONSTANTS \
  [factors] "m"(kFactors), [origin] "m"(kOrigin), [waiting] "m"(waiting_sums), \
  [inverse] "m"(kInverse), [origins] "m"(kOrigins), [slot_bytes] "i"(32 * 12),
// clang-format on

struct LanePanels {
  // Fewer are multiplied as fast without panels, which take six at a time.
  static constexpr int64_t kFrom = 16;
  static constexpr int kTotals = 8;

  // Blocks in LaneOrder::kGroups have a sum for each 16 columns, which takes longer than it gains.
  // Formats whose few tokens have an unpacker of their own have its order, too.
  template <class Unpacker>
  static constexpr bool kServes =
      Unpacker::Codes::kOrder == LaneOrder::kPairs && !requires { typename Unpacker::FewTokens; };

  template <class Unpacker>
  using TraitsOf = LanePanelTraits<PanelTraits<typename Unpacker::Codes, 32>>;

  // slots[kTotals][kPanelTokens][kPanelVectors] += `count` blocks of a panel times the tokens of a
  // tile; the first block begins 256 columns.
  template <class Traits>
  [[gnu::noinline]] static void MultiplyTile(const __m256* panel, int64_t count,
                                             const TileTokens& tokens, PanelActivations at,
                                             __m256* slots) {
    static_assert(kPanelTokens * kPanelVectors == 12);
    static constexpr PanelFloats kInverse(1.0f / Traits::kFactor);
    static constexpr PanelFloats kOrigins(kDotOrigin / Traits::kFactor);
    static_assert(Traits::kScales == 1);
    for (int64_t begin = 0; begin < count; begin += kTotals) {
      int64_t blocks = std::min<int64_t>(kTotals, count - begin);
      __m256* totals = slots;
#include "cpu/avx2/int8_panel_cases.inl"
    }
  }

  // The outputs of a tile from its slots, in the order of Sum(). `sums` may be the first slot.
  static void Add(const __m256* slots, __m256* sums) {
    constexpr int kVectors = kPanelTokens * kPanelVectors;
    for (int i = 0; i < kVectors; ++i) {
      const __m256* slot = slots + i;
      __m256 pairs[4];
      for (int p = 0; p < 4; ++p) {
        pairs[p] = _mm256_add_ps(slot[2 * p * kVectors], slot[(2 * p + 1) * kVectors]);
      }
      sums[i] = _mm256_add_ps(_mm256_add_ps(pairs[0], pairs[2]), _mm256_add_ps(pairs[1], pairs[3]));
    }
  }
};
