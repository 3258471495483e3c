// Opens the region in which functions are compiled for NEON with dot products. No include guard:
// every kernel file of this folder includes its standard and intrinsic headers first, then this
// file, then the code, then end.inl. Code in the region lives in namespace kvant::cpu::neon.
// Lambdas in it belong to the region; templates that were defined before it, such as the standard
// library's, do not.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("arch=armv8.2-a+dotprod"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
