// How a tile of many tokens adds the integers of a scale to the totals: one float for each output,
// over its columns in ascending order. Included inside the target region of matmul.cpp, after
// panel_tile.inl.
//
// `at` vectors into the block of a panel are the scales, then the origins, then the offsets.

// clang-format off
// total += (dot * scale - origin) * (the activations' scale). An integer sum becomes a float
// without a conversion: it starts at the bits of kDotOrigin, so that read as a float it is
// kDotOrigin + dot, exactly.
#define KVANT_SCALE(at, record, sum0, sum1) \
  "vbroadcastss (%%" #record ", %[scales]), %%ymm14\n\t" \
  "vfmsub213ps 32*(" #at "+2)(%[panel]), %%ymm12, %%ymm" #sum0 "\n\t" \
  "vfmsub213ps 32*(" #at "+3)(%[panel]), %%ymm13, %%ymm" #sum1 "\n\t" \
  "vfmadd213ps 32*" #sum0 "(%[totals]), %%ymm14, %%ymm" #sum0 "\n\t" \
  "vfmadd213ps 32*" #sum1 "(%[totals]), %%ymm14, %%ymm" #sum1 "\n\t"
#define KVANT_LOAD_SCALES(at) \
  "vmovaps 32*(" #at ")(%[panel]), %%ymm12\n\t" \
  "vmovaps 32*(" #at "+1)(%[panel]), %%ymm13\n\t"
#define KVANT_FLUSH(at) \
  KVANT_LOAD_SCALES(at) \
  KVANT_FOR_TOKENS(KVANT_SCALE, at) KVANT_FOR_TOKENS(KVANT_STORE_TOTALS, 0)

// total -= offset * (sum of the activations), too.
#define KVANT_FLUSH_WITH_OFFSETS(scale, at) \
  KVANT_LOAD_SCALES(at) KVANT_FOR_TOKENS(KVANT_SCALE, at) \
  KVANT_LOAD_SCALES(at+4) KVANT_FOR_TOKENS(KVANT_OFFSET, scale) \
  KVANT_FOR_TOKENS(KVANT_STORE_TOTALS, 0)

#define KVANT_NEXT_TOTALS
// clang-format on
