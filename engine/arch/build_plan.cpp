#include "engine/arch/build_plan.h"

#include <vector>

#include "base/result.h"
#include "cpu/float_gemm.h"
#include "cpu/kernels/matmul.h"
#include "engine/arch/embedding_head.h"
#include "engine/arch/layer_nodes.h"
#include "engine/arch/predictors.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/activations.h"
#include "engine/graph/builder.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/rowwise_nodes.h"
#include "formats/gguf.h"

namespace kvant::arch {
namespace {

using formats::GgufTensor;
using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

// Adds all layers; returns the cosines and sines of each rope.
Result<std::vector<ValueId>> AddLayers(const ModelSpec& spec, const Stack& stack, ValueId stream,
                                       StackValues& shared, graph::PlanBuilder& builder) {
  std::vector<ValueId> cos_sin = AddRopes(spec, builder);
  shared.keys.resize(stack.layers.size() + stack.predictors.layers.size());
  for (size_t i = 0; i < stack.layers.size(); ++i) {
    KVANT_TRY(AddLayer({.spec = spec,
                        .stack = stack,
                        .layer = stack.layers[i],
                        .number = i,
                        .stream = stream,
                        .cos_sin = cos_sin,
                        .shared = shared},
                       builder));
  }
  return cos_sin;
}

// The output matrix is the embedding where the file has none of its own.
Status AddOutput(const ModelSpec& spec, const Stack& stack, const GgufTensor& embedding,
                 ValueId stream, const StackValues& shared, graph::PlanBuilder& builder) {
  const std::string name(stack.output.tensor);
  std::vector<MatMulOperand> operands;
  if (builder.Find(name + ".weight") != nullptr) {
    KVANT_TRY(builder.AddOperand(operands, name, stack.dim, spec.vocab));
  } else {
    operands.push_back({&embedding, {}, 0});
    KVANT_ASSIGN(operands.back().bias, builder.OptionalVector(name + ".bias", spec.vocab));
    KVANT_TRY(builder.AttachAdapters(operands.back(), name + ".weight"));
  }
  const ValueId selected = builder.NewFloats("selected", RowSpace::kHead, stack.dim);
  if (stack.streams.has_value()) {
    KVANT_TRY(stack.streams->AddEnd(shared.streams, selected, builder));
  } else if (stack.hyper.has_value()) {
    KVANT_TRY(stack.hyper->AddEnd(shared.streams, selected, builder));
  } else {
    builder.Add(RowSpace::kHead, graph::MakeSelectRows(stream, selected, stack.dim));
  }
  const Activations normed =
      builder.NewActivations("output_normed", RowSpace::kHead, stack.dim, operands);
  KVANT_ASSIGN(auto norm, ReadNorm(builder, stack.final_norm, "", stack.dim));
  const bool has_norm = stack.final_norm.kind != NormKind::kNone;
  const std::string norm_name(has_norm ? stack.final_norm.tensor : "output_normed");
  builder.Add(RowSpace::kHead,
              graph::MakeNorm(builder.kernels(), norm_name, std::move(norm), selected, normed));
  const ValueId logits = builder.NewFloats("logits", RowSpace::kHead, spec.vocab);
  builder.AddMatMul(RowSpace::kHead, name, std::move(operands), normed, logits, cpu::Store::kSet);
  if (stack.output.scale != 1) {
    builder.Add(RowSpace::kHead,
                graph::MakeScale(name + ".scale", stack.output.scale, logits, spec.vocab));
  }
  if (stack.output.cap > 0) {
    builder.Add(RowSpace::kHead, graph::MakeCap(builder.kernels(), name + ".cap", stack.output.cap,
                                                logits, spec.vocab));
  }
  builder.plan().SetLogits(logits);
  return {};
}

// The steps between the rows of the embedding and the first layer: learned rows by segment and by
// position, and a norm.
Status AddInputSteps(const Stack& stack, int64_t positions_max, ValueId stream,
                     graph::PlanBuilder& builder) {
  const std::string types = fmt::format("{}.weight", stack.input.token_types);
  const GgufTensor* by_segment = builder.Find(types);
  if (by_segment != nullptr) {
    KVANT_ASSIGN(by_segment, builder.Matrix(types, stack.dim, by_segment->dims[1]));
    builder.Add(RowSpace::kPass, graph::MakeAddTokenTypes(*by_segment, stream));
  }
  if (!stack.input.positions.empty()) {
    KVANT_ASSIGN(
        const GgufTensor* positions,
        builder.Matrix(fmt::format("{}.weight", stack.input.positions), stack.dim, positions_max));
    builder.Add(RowSpace::kPass, graph::MakeAddPositions(*positions, stream));
  }
  if (!stack.input.norm.has_value()) return {};
  KVANT_TRY(AddStreamNorm(*stack.input.norm, "", stack, stream, builder));
  return {};
}

// The rows of the embedding, and what stands between them and the first layer.
Result<ValueId> AddEmbedding(int64_t vocab, const Stack& stack, int64_t positions_max,
                             graph::PlanBuilder& builder, const GgufTensor** embedding) {
  KVANT_ASSIGN(*embedding,
               builder.Matrix(fmt::format("{}.weight", stack.input.tensor), stack.dim, vocab));
  const ValueId stream = builder.NewFloats("x", RowSpace::kPass, stack.dim);
  builder.Add(RowSpace::kPass, graph::MakeEmbed(**embedding, stack.input.scale, stream));
  KVANT_TRY(AddInputSteps(stack, positions_max, stream, builder));
  return stream;
}

// The attentions of a decoder over its source, by layer, with the numbers of their cache layers.
struct CrossLayer {
  const CrossAttention* attention;
  std::string prefix;
  int cache_id;
  std::vector<MatMulOperand> operands;
};

Result<std::vector<CrossLayer>> FindCrossLayers(const Stack& decoder, const graph::Plan& decode,
                                                int64_t dim, graph::PlanBuilder& builder) {
  std::vector<CrossLayer> found;
  int cache_id = 0;
  for (size_t i = 0; i < decoder.layers.size(); ++i) {
    for (const Sublayer& sublayer : decoder.layers[i].sublayers) {
      const auto* attention = std::get_if<CrossAttention>(&sublayer.block);
      if (attention == nullptr) continue;
      const auto layers = decode.cache_layers();
      while (layers[static_cast<size_t>(cache_id)].keeps != graph::Keeps::kSource) ++cache_id;
      CrossLayer& layer = found.emplace_back(
          CrossLayer{attention, fmt::format("{}.{}.", decoder.layer_prefix, i), cache_id++, {}});
      KVANT_ASSIGN(layer.operands, attention->KeysAndValues(builder, layer.prefix, dim));
    }
  }
  return found;
}

// The encoder's output, and the keys and values that each layer of the decoder makes of it.
Status AddEncoded(const ModelSpec& spec, const graph::Plan& decode, ValueId stream,
                  graph::PlanBuilder& builder) {
  const Stack& stack = spec.encoder->stack;
  std::vector<CrossLayer> cross;
  if (!spec.stacks.empty()) {
    KVANT_ASSIGN(cross, FindCrossLayers(spec.stacks.front(), decode, stack.dim, builder));
  }
  std::vector<MatMulOperand> readers;
  for (const CrossLayer& layer : cross) {
    for (const MatMulOperand& operand : layer.operands) readers.push_back({operand.weight, {}, 0});
  }
  Activations encoded = builder.NewActivations("encoded", RowSpace::kPass, stack.dim, readers);
  if (encoded.floats == graph::kNoValue) {
    encoded.floats = builder.NewFloats("encoded", RowSpace::kPass, stack.dim);
  }
  KVANT_ASSIGN(auto norm, ReadNorm(builder, stack.final_norm, "", stack.dim));
  builder.Add(RowSpace::kPass,
              graph::MakeNorm(builder.kernels(), "encoded.norm", std::move(norm), stream, encoded));
  for (CrossLayer& layer : cross) {
    layer.attention->AddStore(builder, layer.prefix, layer.cache_id, std::move(layer.operands),
                              encoded);
  }
  builder.plan().SetEncoded(encoded.floats);
  return {};
}

}  // namespace

Result<std::unique_ptr<graph::Plan>> BuildPlan(const formats::GgufFile& file,
                                               const cpu::KernelTable& kernels,
                                               const cpu::FloatGemm& float_gemm,
                                               const ModelSpec& spec,
                                               graph::MatMulObserver* observer,
                                               graph::AdapterSet* adapters) {
  graph::PlanBuilder builder(file, kernels, float_gemm, observer, graph::kDecodePlan, adapters);
  if (spec.stacks.empty()) return builder.Finish();
  const Stack& stack = spec.stacks.front();
  const GgufTensor* embedding = nullptr;
  KVANT_ASSIGN(const ValueId stream,
               AddEmbedding(spec.vocab, stack, spec.context_max, builder, &embedding));
  StackValues shared;
  if (stack.layer_inputs.has_value()) {
    KVANT_ASSIGN(shared.layer_inputs, stack.layer_inputs->AddNodes(spec, stream, builder));
  }
  if (stack.streams.has_value()) {
    KVANT_ASSIGN(shared.streams, stack.streams->AddBegin(stream, builder));
    shared.stream_shape = stack.streams->shape;
  } else if (stack.hyper.has_value()) {
    shared.streams = stack.hyper->AddBegin(stream, builder);
    shared.stream_shape = stack.hyper->shape;
  }
  KVANT_ASSIGN(const auto cos_sin, AddLayers(spec, stack, stream, shared, builder));
  if (!stack.predictors.layers.empty()) {
    KVANT_TRY(AddPredictorStores(spec, *embedding, stream, cos_sin, shared, builder));
  }
  KVANT_TRY(AddOutput(spec, stack, *embedding, stream, shared, builder));
  return builder.Finish();
}

Result<std::unique_ptr<graph::Plan>> BuildEncodePlan(const formats::GgufFile& file,
                                                     const cpu::KernelTable& kernels,
                                                     const cpu::FloatGemm& float_gemm,
                                                     const ModelSpec& spec,
                                                     const graph::Plan& decode,
                                                     graph::MatMulObserver* observer) {
  graph::PlanBuilder builder(file, kernels, float_gemm, observer, graph::kEncodePlan);
  for (const graph::CacheLayer& layer : decode.cache_layers()) builder.plan().AddCacheLayer(layer);
  const Encoder& encoder = *spec.encoder;
  ValueId stream = graph::kNoValue;
  if (encoder.frames.has_value()) {
    KVANT_ASSIGN(stream, encoder.frames->AddNodes(encoder.stack.dim, builder));
    KVANT_TRY(AddInputSteps(encoder.stack, encoder.source_max, stream, builder));
  } else {
    const GgufTensor* embedding = nullptr;
    KVANT_ASSIGN(stream, AddEmbedding(encoder.vocab, encoder.stack, encoder.source_max, builder,
                                      &embedding));
  }
  StackValues shared;
  KVANT_TRY(AddLayers(spec, encoder.stack, stream, shared, builder));
  KVANT_TRY(AddEncoded(spec, decode, stream, builder));
  return builder.Finish();
}

Result<std::unique_ptr<graph::Plan>> BuildEmbedPlan(const formats::GgufFile& file,
                                                    const cpu::KernelTable& kernels,
                                                    const cpu::FloatGemm& float_gemm,
                                                    const ModelSpec& spec, Pooling pooling,
                                                    graph::MatMulObserver* observer) {
  graph::PlanBuilder builder(file, kernels, float_gemm, observer, graph::kEmbedPlan);
  const Stack& stack = FirstStack(spec);
  if (stack.streams.has_value() || stack.hyper.has_value()) {
    return MakeError(ErrorCode::kNotSupported, "{}: layers with several streams make no vectors",
                     file.path());
  }
  const bool is_encoder = spec.encoder.has_value();
  const GgufTensor* embedding = nullptr;
  KVANT_ASSIGN(
      const ValueId stream,
      AddEmbedding(is_encoder ? spec.encoder->vocab : spec.vocab, stack,
                   is_encoder ? spec.encoder->source_max : spec.context_max, builder, &embedding));
  StackValues shared;
  if (stack.layer_inputs.has_value()) {
    KVANT_ASSIGN(shared.layer_inputs, stack.layer_inputs->AddNodes(spec, stream, builder));
  }
  KVANT_TRY(AddLayers(spec, stack, stream, shared, builder));
  if (stack.final_norm.kind != NormKind::kNone) {
    KVANT_TRY(AddStreamNorm(stack.final_norm, "", stack, stream, builder));
  }
  builder.plan().SetEncoded(stream);
  if (pooling != Pooling::kNone) {
    KVANT_TRY(AddEmbeddingHead(spec, pooling, stream, stack.dim, builder));
  }
  return builder.Finish();
}

}  // namespace kvant::arch
