#include "engine/arch/build_plan.h"

#include <vector>

#include "base/result.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/builder.h"
#include "engine/graph/nodes.h"

namespace kvant::arch {
namespace {

using formats::GgufTensor;
using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

// One value with the cosines and sines of every rope, for all layers.
std::vector<ValueId> AddRopes(const ModelSpec& spec, graph::PlanBuilder& builder) {
  std::vector<ValueId> cos_sin;
  for (size_t i = 0; i < spec.ropes.size(); ++i) {
    const int64_t n_rot = spec.ropes[i].n_rot;
    cos_sin.push_back(builder.NewFloats(fmt::format("cos_sin.{}", i), RowSpace::kPass, n_rot));
    builder.Add(RowSpace::kPass, graph::MakeRopeTable(i, n_rot, cos_sin.back()));
    builder.plan().AddRope(spec.ropes[i]);
  }
  return cos_sin;
}

Status AddLayers(const ModelSpec& spec, const Stack& stack, ValueId stream,
                 graph::PlanBuilder& builder) {
  const std::vector<ValueId> cos_sin = AddRopes(spec, builder);
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    for (const Sublayer& sublayer : stack.layers[i].sublayers) {
      SublayerBuilder context(builder, spec.ropes, cos_sin, sublayer,
                              {.prefix = fmt::format("{}.{}.", stack.layer_prefix, i),
                               .dim = stack.dim,
                               .stream = stream});
      KVANT_TRY(
          std::visit([&](const auto& block) { return block.AddNodes(context); }, sublayer.block));
    }
  }
  return {};
}

// The output matrix is the embedding where the file has none of its own.
Status AddOutput(const ModelSpec& spec, const Stack& stack, const GgufTensor& embedding,
                 ValueId stream, graph::PlanBuilder& builder) {
  const std::string name(stack.output.tensor);
  std::vector<MatMulOperand> operands;
  if (builder.Find(name + ".weight") != nullptr) {
    KVANT_TRY(builder.AddOperand(operands, name, stack.dim, spec.vocab));
  } else {
    operands.push_back({&embedding, {}, 0});
  }
  const ValueId selected = builder.NewFloats("selected", RowSpace::kHead, stack.dim);
  builder.Add(RowSpace::kHead, graph::MakeSelectRows(stream, selected, stack.dim));
  const Activations normed =
      builder.NewActivations("output_normed", RowSpace::kHead, stack.dim, operands);
  const std::string norm(stack.final_norm.tensor);
  KVANT_ASSIGN(auto weight, builder.Vector(norm + ".weight", stack.dim));
  builder.Add(RowSpace::kHead, graph::MakeRmsNorm(builder.kernels(), norm, std::move(weight),
                                                  stack.final_norm.epsilon, selected, normed));
  const ValueId logits = builder.NewFloats("logits", RowSpace::kHead, spec.vocab);
  builder.AddMatMul(RowSpace::kHead, name, std::move(operands), normed, logits, cpu::Store::kSet);
  if (stack.output.cap > 0) {
    builder.Add(RowSpace::kHead, graph::MakeCap(builder.kernels(), name + ".cap", stack.output.cap,
                                                logits, spec.vocab));
  }
  builder.plan().SetLogits(logits);
  return {};
}

}  // namespace

Result<std::unique_ptr<graph::Plan>> BuildPlan(const formats::GgufFile& file,
                                               const cpu::KernelTable& kernels,
                                               const cpu::FloatGemm& float_gemm,
                                               const ModelSpec& spec,
                                               graph::MatMulObserver* observer) {
  graph::PlanBuilder builder(file, kernels, float_gemm, observer);
  const Stack& stack = spec.stacks.front();
  KVANT_ASSIGN(const GgufTensor* embedding,
               builder.Matrix(fmt::format("{}.weight", stack.input.tensor), stack.dim, spec.vocab));
  const ValueId stream = builder.NewFloats("x", RowSpace::kPass, stack.dim);
  builder.Add(RowSpace::kPass, graph::MakeEmbed(*embedding, stack.input.scale, stream));
  KVANT_TRY(AddLayers(spec, stack, stream, builder));
  KVANT_TRY(AddOutput(spec, stack, *embedding, stream, builder));
  return builder.Finish();
}

}  // namespace kvant::arch
