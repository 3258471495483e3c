// The last step of a gated unit, with or without experts, on columns of gate and up that it has
// just multiplied: product = activation(gate) * up, within the limits that the activation may have,
// as floats and quantized.
#pragma once

#include <cstdint>
#include <string>

#include "cpu/kernels/activation.h"
#include "cpu/kernels/matmul.h"
#include "cpu/kernels/table.h"
#include "engine/graph/activations.h"
#include "engine/graph/plan.h"

namespace kvant::graph {

// A second matrix whose products with a token go, beside the products of the first, to take(token,
// row, count, first, second), as cpu::MatMulPair says; it must outlive the pair.
template <class Take>
cpu::MatMulPair PairOf(const std::byte* weights, const Take& take) {
  return {
      weights,
      [](const void* context, int64_t token, int64_t row, int64_t count, float* first,
         float* second) { (*static_cast<const Take*>(context))(token, row, count, first, second); },
      &take};
}

class GatedColumns {
 public:
  // Columns are cut at multiples of this, so that shares meet at the borders of cache lines of
  // codes.
  static constexpr int64_t kTile = 64;
  // Columns may be cut at multiples of this: so many have one scale.
  static constexpr int64_t kTileLeast = 32;
  // With many tokens, kPiece columns are multiplied and then activated while they are still in the
  // cache: gate and up of 512 tokens fill a second-level cache.
  static constexpr int64_t kPiece = 256;

  // A row of `gate_up` is [out.cols] gates, [out.cols] ups.
  GatedColumns(const cpu::KernelTable& kernels, const cpu::GateActivation& activation,
               ValueId gate_up, const Activations& out)
      : kernels_(kernels),
        limits_(activation),
        activation_(kernels.ForActivation(activation.activation)),
        gate_up_(gate_up),
        out_(out) {}

  int64_t cols() const { return out_.cols; }
  ValueId gate_up() const { return gate_up_; }

  // The product of these rows and columns. Where no floats are asked for, it overwrites the gate.
  void Run(const PassContext& pass, const Range& rows, const Range& cols) const;
  // Runs on a row whose gates and ups in these columns lie elsewhere. Limits change both.
  void RunRow(const PassContext& pass, int64_t row, const Range& cols, float* gate,
              float* up) const;

  // "silu * up + quantize int8 avx2 [1024]".
  std::string Describe() const;

 private:
  const cpu::KernelTable& kernels_;
  cpu::GateActivation limits_;
  const cpu::ActivationKernel& activation_;
  ValueId gate_up_;
  Activations out_;
};

}  // namespace kvant::graph
