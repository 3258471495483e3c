#include "engine/arch/sublayer_builder.h"

#include <algorithm>

#include "base/result.h"
#include "cpu/kernels/matmul.h"
#include "engine/arch/spec.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

Result<graph::Norm> ReadNorm(graph::PlanBuilder& plan, const Norm& norm, const std::string& prefix,
                             int64_t cols) {
  graph::Norm read = {.kind = norm.kind, .epsilon = norm.epsilon};
  if (norm.tensor.empty()) {
    read.weight.assign(static_cast<size_t>(cols), 1.0f);
    return read;
  }
  const std::string name = prefix + std::string(norm.tensor);
  const bool is_bare = plan.Find(name) != nullptr;  // as Falcon-H1 names one of its norms
  KVANT_ASSIGN(read.weight, plan.Vector(is_bare ? name : name + ".weight", cols));
  if (norm.kind == NormKind::kLayer) {
    KVANT_ASSIGN(read.bias, plan.OptionalVector(name + ".bias", cols));
  }
  return read;
}

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
    if (!own.empty()) {
      bias.resize(static_cast<size_t>(all_rows));
      std::copy(own.begin(), own.end(), bias.begin() + row);
    }
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
                                              const std::vector<MatMulOperand>& readers,
                                              const std::vector<graph::ExpertOperand>& experts) {
  if (ReadsNormedStream()) {
    // That norm also writes what the block reads.
    const Activations input = plan_.NewActivations(Name(name), RowSpace::kPass, place_.dim, readers,
                                                   experts, place_.stream);
    const StreamNorm& last = place_.shared->stream_norm;
    if (input.int8 != graph::kNoValue) {
      plan_.plan().ReplaceLast(
          graph::Stage::kBody,
          graph::MakeNorm(plan_.kernels(), last.name, last.norm, place_.stream, input));
    }
    return input;
  }
  const Activations input =
      plan_.NewActivations(Name(name), RowSpace::kPass, place_.dim, readers, experts);
  KVANT_TRY(AddNormOfInput(name, input));
  return input;
}

bool SublayerBuilder::ReadsNormedStream() const {
  const size_t nodes = plan_.plan().nodes(graph::Stage::kBody).size();
  return !sublayer_.norm_before.has_value() && place_.source == place_.stream &&
         place_.shared->stream_norm.nodes == nodes && nodes > 0;
}

Result<ValueId> SublayerBuilder::AddFloatInput(std::string_view name) {
  const ValueId input = plan_.NewFloats(Name(name), RowSpace::kPass, place_.dim);
  KVANT_TRY(AddNormOfInput(name, {.floats = input, .cols = place_.dim}));
  return input;
}

Status SublayerBuilder::AddNormOfInput(std::string_view name, const Activations& input) {
  graph::Norm norm = {.kind = NormKind::kNone};
  std::string norm_name = Name(name);
  if (sublayer_.norm_before.has_value()) {
    norm_name = Name(sublayer_.norm_before->tensor);
    KVANT_ASSIGN(norm, ReadNorm(plan_, *sublayer_.norm_before, place_.prefix, place_.dim));
  }
  plan_.Add(RowSpace::kPass,
            graph::MakeNorm(plan_.kernels(), norm_name, std::move(norm), place_.source, input));
  return {};
}

Status SublayerBuilder::AddToStream(std::string_view name, std::vector<MatMulOperand> operands,
                                    const Activations& in) {
  Target target = BeginResult(name);
  // A product with a scale is added to the stream only after it has been multiplied.
  const bool scaled =
      std::ranges::any_of(operands, [](const MatMulOperand& one) { return one.scale != 1; });
  if (scaled && target.store == cpu::Store::kAdd && !sublayer_.norm_with_stream.has_value()) {
    target = NewTarget(name);
  }
  if (!scaled || !sublayer_.norm_with_stream.has_value()) {
    plan_.AddMatMul(RowSpace::kPass, Name(name), std::move(operands), in, target.value,
                    target.store);
    return EndResult(target);
  }
  const Target product = NewTarget(fmt::format("{}.scaled", name));
  plan_.AddMatMul(RowSpace::kPass, Name(name), std::move(operands), in, product.value,
                  product.store);
  plan_.Add(RowSpace::kPass, graph::MakeAddNorm(plan_.kernels(), Name(fmt::format("{}.add", name)),
                                                {.kind = NormKind::kNone}, place_.dim, 1,
                                                product.value, target.value));
  return EndResult(target);
}

SublayerBuilder SublayerBuilder::Part(const Sublayer& part, const Target& target) const {
  Place place = place_;
  place.stream = target.value;
  place.store = target.store;
  return {plan_, ropes_, cos_sin_, part, std::move(place)};
}

SublayerBuilder::Target SublayerBuilder::BeginResult(std::string_view name) {
  if (sublayer_.norm_with_stream.has_value()) {
    const Target target = NewTarget(name);
    plan_.Add(RowSpace::kPass,
              graph::MakeNorm(plan_.kernels(), Name(fmt::format("{}.stream", name)),
                              {.kind = NormKind::kNone}, place_.stream,
                              {.floats = target.value, .cols = place_.dim}));
    return {target.value, cpu::Store::kAdd};
  }
  if (!sublayer_.norm_after.has_value() && sublayer_.residual_scale == 1) {
    return {place_.stream, place_.store};
  }
  return NewTarget(name);
}

SublayerBuilder::Target SublayerBuilder::NewTarget(std::string_view name) {
  return {plan_.NewFloats(Name(name), RowSpace::kPass, place_.dim), cpu::Store::kSet};
}

Status SublayerBuilder::EndResult(const Target& target) {
  if (target.value == place_.stream) return {};
  graph::Norm norm = {.kind = NormKind::kNone};
  std::string norm_name = plan_.plan().values()[static_cast<size_t>(target.value)].name + ".add";
  const std::optional<Norm>& after =
      sublayer_.norm_with_stream.has_value() ? sublayer_.norm_with_stream : sublayer_.norm_after;
  if (after.has_value()) {
    norm_name = Name(after->tensor);
    KVANT_ASSIGN(norm, ReadNorm(plan_, *after, place_.prefix, place_.dim));
  }
  if (place_.store == cpu::Store::kSet) {
    plan_.Add(RowSpace::kPass,
              graph::MakeNorm(plan_.kernels(), norm_name, std::move(norm), target.value,
                              {.floats = place_.stream, .cols = place_.dim}));
    return {};
  }
  plan_.Add(RowSpace::kPass,
            graph::MakeAddNorm(plan_.kernels(), norm_name, std::move(norm), place_.dim,
                               sublayer_.residual_scale, target.value, place_.stream));
  return {};
}

}  // namespace kvant::arch
