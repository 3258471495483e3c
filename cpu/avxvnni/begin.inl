// Opens the region in which functions are compiled for AVX2 with AVX-VNNI, the byte products of
// AVX-512 VNNI in 256 bits and without AVX-512. The rules of cpu/avx2/begin.inl hold.
#if defined(__clang__)
#pragma clang attribute push(                                                   \
        __attribute__((target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt,avxvnni"))), \
            apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt,avxvnni")
#endif
