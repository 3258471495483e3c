// Opens the region in which functions are compiled for AVX2. No include guard: every kernel
// file of this folder includes its standard and intrinsic headers first, then this file, then the
// code, then end.inl. Code in the region lives in namespace kvant::cpu::avx2. Lambdas in it belong
// to the region; templates that were defined before it, such as the standard library's, do not.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt"))), \
                                 apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt")
#endif
