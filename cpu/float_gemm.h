// How float matrices are multiplied with many tokens (TokenCount::kMany): in panels of our own, by
// a library, or as with few tokens.
//
// A library is called single-threaded on tiles whose borders are fixed by position, so the number
// of threads never changes a bit. Different backends may differ in the last bits; `own` gives the
// bits of the few-row kernels of cpu/kernels/matmul.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/matmul.h"

namespace kvant::cpu {

struct FloatGemm {
  const char* name;  // "panels", "onednn", "openblas", "own"
  // A library's product: out[t * out_stride + r] = (or +=) sum_c weights[r * cols + c] *
  // activations[t * activation_stride + c], r < rows, t < tokens. Null for kernels of our own.
  void (*run)(const float* weights, int64_t rows, int64_t cols, const float* activations,
              int64_t activation_stride, int64_t tokens, float* out, int64_t out_stride,
              Store store);
  // True: our own panels, MatMulKernel::run_many, multiply many tokens where a kernel has them.
  // False: a library's `run` does, or MatMulKernel::run where that is null.
  bool panels;

  // Passes with many tokens have the arithmetic of passes with few tokens, in attention, too.
  bool as_few() const { return run == nullptr && !panels; }
};

// The backends of this build, preferred first.
std::span<const FloatGemm> AllFloatGemms();

// The named backend, or the preferred one for "". kInvalid for an unknown name, kNotSupported for
// one that is absent from this build.
Result<const FloatGemm*> ChooseFloatGemm(std::string_view name);

// Chooses the backend that the environment variable KVANT_FLOAT_GEMM names, with the errors of
// ChooseFloatGemm.
Result<const FloatGemm*> ChooseFloatGemmFromEnvironment();

}  // namespace kvant::cpu
