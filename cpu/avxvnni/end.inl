// Closes the region of begin.inl.
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
