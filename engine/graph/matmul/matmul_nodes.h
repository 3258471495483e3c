// The nodes of matrix products: several matrices with one input, and the gated unit.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cpu/float_gemm.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/matmul.h"
#include "engine/graph/activations.h"
#include "engine/graph/matmul/low_rank.h"
#include "engine/graph/plan.h"
#include "formats/gguf.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::graph {

// One matrix of a MatMulNode, an operand of its product: its rows become columns [out_col, out_col
// + rows) of the output.
struct MatMulOperand {
  const formats::GgufTensor* weight = nullptr;
  WeightVector bias;  // empty = none
  int64_t out_col = 0;
  float scale = 1;  // of the products, before the bias; 1 where they are added to the output
  // The additions of adapters, from columns of `low`, [ranks]; empty: there are none.
  std::vector<LowRankPart> adapters = {};
  ValueId low = kNoValue;
};

// products = products * scale + bias, number by number, rounded twice; bias: as many, or null.
inline void ScaleAndAddBias(std::span<float> products, float scale, const float* bias) {
  if (scale != 1) {
    for (float& product : products) product *= scale;
  }
  if (bias == nullptr) return;
  for (size_t i = 0; i < products.size(); ++i) products[i] += bias[i];
}

// out columns = (or +=) the products of all operands with `in`.
std::unique_ptr<Node> MakeMatMul(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm,
                                 std::string name, std::vector<MatMulOperand> operands,
                                 const Activations& in, ValueId out, cpu::Store store);

// product = the product of one operand with `in`, [ffn]; out = activation(product), as floats and
// quantized as far as `out` asks. Afterwards `product` is undefined.
std::unique_ptr<Node> MakeActivatedMatMul(const cpu::KernelTable& kernels,
                                          const cpu::FloatGemm& float_gemm, std::string name,
                                          MatMulOperand operand, const Activations& in,
                                          cpu::Activation activation, ValueId product,
                                          const Activations& out);

// gate_up = the products of `operands` with `in`, columns [ffn] gate, [ffn] up, which are one
// operand or two; out = activation(gate) * up, as floats and quantized as far as `out` asks.
// Afterwards gate_up is undefined.
std::unique_ptr<Node> MakeGatedUnit(const cpu::KernelTable& kernels,
                                    const cpu::FloatGemm& float_gemm, std::string name,
                                    std::vector<MatMulOperand> operands, const Activations& in,
                                    const cpu::GateActivation& activation, ValueId gate_up,
                                    const Activations& out);

}  // namespace kvant::graph
