#include "engine/arch/predictors.h"

#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "cpu/kernels/matmul.h"
#include "engine/arch/layer_nodes.h"
#include "engine/graph/activations.h"
#include "engine/graph/builder.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {
namespace {

using formats::GgufTensor;
using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

std::string PrefixOf(const Stack& stack, size_t number) {
  return fmt::format("{}.{}.nextn.", stack.layer_prefix, stack.layers.size() + number);
}

// The row with which a predictor begins: of its token, and of `hidden`, the rows of the positions
// before, or of PassContext::hidden where that is no value.
Result<ValueId> AddBeginning(const Stack& stack, size_t number, int64_t vocab,
                             const GgufTensor& embedding, ValueId hidden,
                             graph::PlanBuilder& builder) {
  const std::string prefix = PrefixOf(stack, number);
  const GgufTensor* table = &embedding;
  if (builder.Find(prefix + "embed_tokens.weight") != nullptr) {
    KVANT_ASSIGN(table, builder.Matrix(prefix + "embed_tokens.weight", stack.dim, vocab));
  }
  std::vector<MatMulOperand> operands;
  KVANT_TRY(builder.AddOperand(operands, prefix + "eh_proj", 2 * stack.dim, stack.dim));
  const auto norm = [&](std::string_view tensor) {
    return ReadNorm(builder, {stack.final_norm.kind, tensor, stack.final_norm.epsilon}, prefix,
                    stack.dim);
  };
  KVANT_ASSIGN(graph::Norm of_token, norm("enorm"));
  KVANT_ASSIGN(graph::Norm of_hidden, norm("hnorm"));
  const ValueId token = builder.NewFloats(prefix + "token", RowSpace::kPass, stack.dim);
  builder.Add(RowSpace::kPass, graph::MakeEmbed(*table, stack.input.scale, token));
  const ValueId pair = builder.NewFloats(prefix + "pair", RowSpace::kPass, 2 * stack.dim);
  builder.Add(RowSpace::kPass,
              graph::MakePairWithHidden(builder.kernels(), prefix + "pair", std::move(of_token),
                                        std::move(of_hidden), token, hidden, pair));
  const Activations in =
      builder.NewActivations(prefix + "input", RowSpace::kPass, 2 * stack.dim, operands);
  builder.Add(RowSpace::kPass, graph::MakeNorm(builder.kernels(), prefix + "input",
                                               {.kind = NormKind::kNone}, pair, in));
  const ValueId stream = builder.NewFloats(prefix + "x", RowSpace::kPass, stack.dim);
  builder.AddMatMul(RowSpace::kPass, prefix + "eh_proj", std::move(operands), in, stream,
                    cpu::Store::kSet);
  return stream;
}

LayerPlace PlaceOf(const ModelSpec& spec, size_t number, ValueId stream,
                   std::span<const ValueId> cos_sin, StackValues& shared) {
  const Stack& stack = spec.stacks.front();
  return {.spec = spec,
          .stack = stack,
          .layer = stack.predictors.layers[number],
          .number = stack.layers.size() + number,
          .stream = stream,
          .cos_sin = cos_sin,
          .shared = shared};
}

// The norm of a predictor's result: its own where the file has one, or else the model's.
Result<graph::Norm> FindHeadNorm(const Stack& stack, size_t number, graph::PlanBuilder& builder) {
  Norm norm = stack.predictors.head_norm.value_or(stack.final_norm);
  const std::string layer = fmt::format("{}.{}.", stack.layer_prefix, stack.layers.size() + number);
  for (const std::string_view own : {"nextn.shared_head_norm", "layer_output_norm"}) {
    norm.tensor = own;
    if (builder.Find(layer + std::string(own) + ".weight") != nullptr) {
      return ReadNorm(builder, norm, layer, stack.dim);
    }
  }
  return ReadNorm(builder, stack.final_norm, "", stack.dim);
}

// The matrix of a predictor's logits: its own, or the model's, which may be the embedding.
Status FindHead(const Stack& stack, size_t number, int64_t vocab, const GgufTensor& embedding,
                graph::PlanBuilder& builder, std::vector<MatMulOperand>& head) {
  for (const std::string& name :
       {PrefixOf(stack, number) + "shared_head_head", std::string(stack.output.tensor)}) {
    if (builder.Find(name + ".weight") == nullptr) continue;
    return builder.AddOperand(head, name, stack.dim, vocab);
  }
  head.push_back({&embedding, {}, 0});
  KVANT_ASSIGN(head.back().bias,
               builder.OptionalVector(std::string(stack.output.tensor) + ".bias", vocab));
  return {};
}

// Adds the logits of the stream of a predictor, and the rows from which guessing goes on.
Status AddHead(const Stack& stack, size_t number, int64_t vocab, const GgufTensor& embedding,
               ValueId stream, graph::PlanBuilder& builder) {
  std::vector<MatMulOperand> head;
  KVANT_TRY(FindHead(stack, number, vocab, embedding, builder, head));
  const ValueId normed = builder.NewFloats("normed", RowSpace::kPass, stack.dim);
  const Activations in =
      builder.NewActivations("normed", RowSpace::kPass, stack.dim, head, {}, normed);
  KVANT_ASSIGN(graph::Norm norm, FindHeadNorm(stack, number, builder));
  builder.Add(RowSpace::kPass,
              graph::MakeNorm(builder.kernels(), "head_norm", std::move(norm), stream, in));
  const ValueId logits = builder.NewFloats("logits", RowSpace::kPass, vocab);
  builder.AddMatMul(RowSpace::kPass, "head", std::move(head), in, logits, cpu::Store::kSet);
  if (stack.output.scale != 1) {
    builder.Add(RowSpace::kPass, graph::MakeScale("head.scale", stack.output.scale, logits, vocab));
  }
  if (stack.output.cap > 0) {
    builder.Add(RowSpace::kPass,
                graph::MakeCap(builder.kernels(), "head.cap", stack.output.cap, logits, vocab));
  }
  builder.plan().SetEncoded(stack.predictors.reads_normed ? normed : stream);
  builder.plan().SetLogits(logits);
  return {};
}

// Whether a layer begins with an attention whose keys and values are its own and all that it reads.
bool BeginsWithOwnKeys(const LayerSpec& layer) {
  if (layer.sublayers.empty()) return false;
  const auto& block = layer.sublayers.front().block;
  if (const auto* attention = std::get_if<Attention>(&block)) {
    return !attention->keys_of.has_value() && !attention->indexer.has_value() &&
           attention->mask.kind != MaskKind::kAll;
  }
  const auto* latent = std::get_if<LatentAttention>(&block);
  return latent != nullptr && !latent->indexer.has_value();
}

Error NotKeysAlone(const graph::PlanBuilder& builder, const Stack& stack, size_t number) {
  return MakeError(ErrorCode::kNotSupported,
                   "{}: layer {}: expected a layer that predicts further tokens to begin with an "
                   "attention and to keep nothing but its own keys and values",
                   builder.path(), stack.layers.size() + number);
}

}  // namespace

Status AddPredictorStores(const ModelSpec& spec, const GgufTensor& embedding, ValueId stream,
                          std::span<const ValueId> cos_sin, StackValues& shared,
                          graph::PlanBuilder& builder) {
  const Stack& stack = spec.stacks.front();
  const ValueId hidden = builder.NewFloats("hidden", RowSpace::kPass, stack.dim);
  graph::Norm norm = {.kind = NormKind::kNone};
  if (stack.predictors.reads_normed) {
    KVANT_ASSIGN(norm, ReadNorm(builder, stack.final_norm, "", stack.dim));
  }
  builder.Add(RowSpace::kPass, graph::MakeNorm(builder.kernels(), "hidden", std::move(norm), stream,
                                               {.floats = hidden, .cols = stack.dim}));
  builder.plan().SetEncoded(hidden);
  for (size_t i = 0; i < stack.predictors.layers.size(); ++i) {
    if (i >= graph::kDraftPlans.size()) {
      return MakeError(ErrorCode::kNotSupported,
                       "{}: expected at most {} layers that predict further tokens, found {}",
                       builder.path(), graph::kDraftPlans.size(), stack.predictors.layers.size());
    }
    if (!BeginsWithOwnKeys(stack.predictors.layers[i])) return NotKeysAlone(builder, stack, i);
    KVANT_ASSIGN(const ValueId beginning,
                 AddBeginning(stack, i, spec.vocab, embedding, hidden, builder));
    LayerPlace place = PlaceOf(spec, i, beginning, cos_sin, shared);
    place.stores_only = true;
    const size_t before = builder.plan().cache_layers().size();
    KVANT_TRY(AddLayer(place, builder));
    if (builder.plan().cache_layers().size() != before + 1) return NotKeysAlone(builder, stack, i);
  }
  return {};
}

Result<std::unique_ptr<graph::Plan>> BuildDraftPlan(const formats::GgufFile& file,
                                                    const cpu::KernelTable& kernels,
                                                    const cpu::FloatGemm& float_gemm,
                                                    const ModelSpec& spec,
                                                    const graph::Plan& decode, size_t number) {
  graph::PlanBuilder builder(file, kernels, float_gemm, nullptr, graph::kDraftPlans[number]);
  for (const graph::CacheLayer& layer : decode.cache_layers()) builder.plan().AddCacheLayer(layer);
  const Stack& stack = spec.stacks.front();
  KVANT_ASSIGN(const GgufTensor* embedding,
               builder.Matrix(fmt::format("{}.weight", stack.input.tensor), stack.dim, spec.vocab));
  KVANT_ASSIGN(const ValueId stream,
               AddBeginning(stack, number, spec.vocab, *embedding, graph::kNoValue, builder));
  const std::vector<ValueId> cos_sin = AddRopes(spec, builder);
  StackValues shared;
  shared.keys.resize(stack.layers.size() + stack.predictors.layers.size());
  LayerPlace place = PlaceOf(spec, number, stream, cos_sin, shared);
  // The predictors' cache layers are the last ones.
  place.cache_id =
      static_cast<int>(decode.cache_layers().size() - stack.predictors.layers.size() + number);
  KVANT_TRY(AddLayer(place, builder));
  if (builder.plan().cache_layers().size() != decode.cache_layers().size()) {
    return NotKeysAlone(builder, stack, number);
  }
  KVANT_TRY(AddHead(stack, number, spec.vocab, *embedding, stream, builder));
  return builder.Finish();
}

}  // namespace kvant::arch
