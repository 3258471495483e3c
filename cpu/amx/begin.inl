// Opens the region in which functions are compiled for AVX-512 with VNNI, VBMI and BF16, as
// cpu/avx512vnni/begin.inl does without the last two. Its end is cpu/avx512vnni/end.inl. The tile
// instructions are written in assembler and need no target.
#if defined(__clang__)
#pragma clang attribute push(                                                             \
        __attribute__((target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt,"                      \
                              "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi," \
                              "avx512bf16"))),                                            \
            apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx512bf16")
#endif
