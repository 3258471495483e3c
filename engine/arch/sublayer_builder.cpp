#include "engine/arch/sublayer_builder.h"

#include "base/result.h"
#include "cpu/kernels.h"
#include "engine/arch/spec.h"

namespace kvant::arch {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

Result<std::vector<MatMulOperand>> SublayerBuilder::Stacked(
    std::string_view fused, int64_t cols, std::span<const StackedMatrix> matrices) const {
  if (plan_.Find(Name(fused) + ".weight") == nullptr) return Separate(cols, matrices);
  int64_t all_rows = 0;
  for (const StackedMatrix& matrix : matrices) all_rows += matrix.rows;
  std::vector<MatMulOperand> operands;
  KVANT_TRY(plan_.AddOperand(operands, Name(fused), cols, all_rows));
  graph::WeightVector& bias = operands.front().bias;
  if (!bias.empty()) return operands;
  int64_t row = 0;
  for (const StackedMatrix& matrix : matrices) {
    KVANT_ASSIGN(const graph::WeightVector own,
                 plan_.OptionalVector(Name(matrix.name) + ".bias", matrix.rows));
    if (!own.empty()) bias.resize(static_cast<size_t>(all_rows));
    std::copy(own.begin(), own.end(), bias.begin() + row);
    row += matrix.rows;
  }
  return operands;
}

Result<std::vector<MatMulOperand>> SublayerBuilder::Separate(
    int64_t cols, std::span<const StackedMatrix> matrices) const {
  std::vector<MatMulOperand> operands;
  for (const StackedMatrix& matrix : matrices) {
    KVANT_TRY(plan_.AddOperand(operands, Name(matrix.name), cols, matrix.rows));
  }
  return operands;
}

Result<Activations> SublayerBuilder::AddInput(std::string_view name,
                                              const std::vector<MatMulOperand>& readers) {
  const Norm& norm = sublayer_.norm_before;
  const Activations normed = plan_.NewActivations(Name(name), RowSpace::kPass, place_.dim, readers);
  const std::string norm_name = Name(norm.tensor);
  KVANT_ASSIGN(auto weight, plan_.Vector(norm_name + ".weight", place_.dim));
  plan_.Add(RowSpace::kPass, graph::MakeRmsNorm(plan_.kernels(), norm_name, std::move(weight),
                                                norm.epsilon, place_.stream, normed));
  return normed;
}

Status SublayerBuilder::AddToStream(std::string_view name, std::vector<MatMulOperand> operands,
                                    const Activations& in) {
  const std::string full_name = Name(name);
  if (!sublayer_.norm_after.has_value()) {
    plan_.AddMatMul(RowSpace::kPass, full_name, std::move(operands), in, place_.stream,
                    cpu::Store::kAdd);
    return {};
  }
  const ValueId product = plan_.NewFloats(full_name, RowSpace::kPass, place_.dim);
  plan_.AddMatMul(RowSpace::kPass, full_name, std::move(operands), in, product, cpu::Store::kSet);
  const std::string norm_name = Name(sublayer_.norm_after->tensor);
  KVANT_ASSIGN(auto weight, plan_.Vector(norm_name + ".weight", place_.dim));
  plan_.Add(RowSpace::kPass,
            graph::MakeAddRmsNorm(plan_.kernels(), norm_name, std::move(weight),
                                  sublayer_.norm_after->epsilon, product, place_.stream));
  return {};
}

}  // namespace kvant::arch
