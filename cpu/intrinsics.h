// The vector intrinsics of x86 and Arm. GCC 12's own headers start "undefined" vectors from
// themselves, which its -Wuninitialized then reports in every function that inlines them.
#pragma once

#if defined(__x86_64__)
#define KVANT_VECTOR_REGISTER "v"  // as a constraint of asm
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
#elif defined(__aarch64__)
#define KVANT_VECTOR_REGISTER "w"
#include <arm_neon.h>
#endif
