// The instructions of strips of AVX2 and AVX-VNNI that differ from those of their panels; strips
// and panels share the others. Included inside the target region of matmul.cpp, after
// int8_panel.inl and strip_layout.inl. Then strip_track.inl of AVX2 or AVX-VNNI is included once
// for each number of tokens of a tile, KVANT_STRIP_TOKENS, and strips.inl.
//
// The totals of a track pass through the first-level cache, as those of a panel do. An item ends in
// the operations of MultiplyAddOne() in int8_blocks.inl: a conversion (here a subtraction, since an
// integer sum starts at the bits of kDotOrigin), the product of both scales, an FMA. Where integers
// count Traits::kFactor times, scales are divided by that power of two, which changes no bit of the
// total unless the product of both scales is below 2^-119.

// clang-format off
#undef KVANT_FOR_TOKENS
#undef KVANT_SCALE
#undef KVANT_OFFSETS_AFTER
#undef KVANT_SCALE_CONSTANTS

#define KVANT_FOR_SO_MANY_TOKENS(count) KVANT_FOR_ ## count ## _TOKENS
#define KVANT_FOR_THESE_TOKENS(count) KVANT_FOR_SO_MANY_TOKENS(count)
#define KVANT_FOR_TOKENS KVANT_FOR_THESE_TOKENS(KVANT_STRIP_TOKENS)

// total += (dot - origin) * (scale * the activations' scale)
#define KVANT_SCALE(at, record, sum0, sum1) \
  "vbroadcastss (%%" #record ", %[scales]), %%ymm14\n\t" \
  "vsubps %[origins], %%ymm" #sum0 ", %%ymm" #sum0 "\n\t" \
  "vsubps %[origins], %%ymm" #sum1 ", %%ymm" #sum1 "\n\t" \
  "vmulps %%ymm14, %%ymm12, %%ymm15\n\t" \
  "vmulps %%ymm14, %%ymm13, %%ymm14\n\t" \
  "vfmadd213ps 32*" #sum0 "(%[totals]), %%ymm15, %%ymm" #sum0 "\n\t" \
  "vfmadd213ps 32*" #sum1 "(%[totals]), %%ymm14, %%ymm" #sum1 "\n\t"
#define KVANT_OFFSETS_AFTER "+2"
#define KVANT_SCALE_CONSTANTS [origins] "m"(kDotOrigins),
// clang-format on

struct alignas(32) DotOrigins {
  float floats[8];
};
constexpr DotOrigins kDotOrigins = {{kDotOrigin, kDotOrigin, kDotOrigin, kDotOrigin, kDotOrigin,
                                     kDotOrigin, kDotOrigin, kDotOrigin}};
