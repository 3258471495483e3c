// Products of a matrix of one head with rows, by the kernel of its format.
#pragma once

#include <cstdint>
#include <span>

#include "cpu/activations.h"
#include "cpu/float_gemm.h"
#include "cpu/kernels/matmul.h"
#include "cpu/kernels/token_count.h"
#include "engine/graph/attention/latent_nodes.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

class HeadProduct {
 public:
  HeadProduct(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm,
              const HeadMatrices& matrices);

  const HeadMatrices& matrices() const { return matrices_; }
  bool reads_int8() const { return kernel_->activation == cpu::ActivationKind::kInt8; }
  int64_t row_tile() const { return kernel_->row_tile; }
  size_t ScratchBytes() const { return kernel_->scratch_bytes(matrices_.cols()); }

  struct Rows {
    const std::byte* in;  // row 0, as the kernel reads it
    int64_t in_stride;    // bytes
    int64_t count;
    cpu::TokenCount tokens;
    float* out;          // row 0, of weight row 0 of the head
    int64_t out_stride;  // floats
  };
  // The products of the head's weight rows [weight_rows.begin, weight_rows.end).
  void Run(int64_t head, const Range& weight_rows, const Rows& rows,
           std::span<std::byte> scratch) const;

  // Adds the work of `tokens` rows for each of `heads` heads.
  void AddWork(int64_t heads, double tokens, Work& work) const;
  std::string Describe() const;

 private:
  HeadMatrices matrices_;
  const cpu::MatMulKernel* kernel_;
  bool panels_;
};

}  // namespace kvant::graph
