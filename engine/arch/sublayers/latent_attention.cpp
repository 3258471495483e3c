#include "engine/arch/sublayers/latent_attention.h"

#include <cmath>
#include <string>

#include "base/result.h"
#include "engine/arch/read_ropes.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/activations.h"
#include "engine/graph/attention/latent_nodes.h"
#include "engine/graph/matmul/gate_nodes.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {
namespace {

using formats::GgufTensor;
using graph::Activations;
using graph::HeadColumns;
using graph::HeadMatrices;
using graph::LatentShape;
using graph::MatMulOperand;
using graph::RowSpace;
using graph::ValueId;

// Matrices of each head: Wk transposed, Wk and Wv.
struct LatentMatrices {
  HeadMatrices absorb;
  HeadMatrices keys;
  HeadMatrices values;
};

Result<LatentMatrices> FindLatentMatrices(const LatentShape& shape, SublayerBuilder& builder) {
  graph::PlanBuilder& plan = builder.plan();
  LatentMatrices found;
  const GgufTensor* both = nullptr;  // Wk and Wv
  const int64_t both_rows = shape.nope + shape.v_dim;
  const bool split = plan.Find(builder.Name("attn_k_b.weight")) != nullptr ||
                     plan.Find(builder.Name("attn_v_b.weight")) != nullptr;
  if (!split || plan.Find(builder.Name("attn_kv_b.weight")) != nullptr) {
    KVANT_ASSIGN(
        both, plan.Matrix(builder.Name("attn_kv_b.weight"), shape.latent, shape.heads * both_rows));
    found.keys = {both, 0, both_rows, shape.nope};
    found.values = {both, shape.nope, both_rows, shape.v_dim};
  }
  const std::string turned = builder.Name("attn_k_b.transposed");
  if (!split) {
    KVANT_ASSIGN(const GgufTensor* absorb,
                 plan.Transposed(turned, *both, 0, both_rows, shape.nope, shape.heads));
    found.absorb = {absorb, 0, shape.latent, shape.latent};
    return found;
  }
  KVANT_ASSIGN(const GgufTensor* k_b,
               plan.Matrix(builder.Name("attn_k_b.weight"), shape.nope, shape.latent, shape.heads));
  KVANT_ASSIGN(const GgufTensor* v_b, plan.Matrix(builder.Name("attn_v_b.weight"), shape.latent,
                                                  shape.v_dim, shape.heads));
  found.absorb = {k_b, 0, shape.latent, shape.latent};
  found.values = {v_b, 0, shape.v_dim, shape.v_dim};
  if (both != nullptr) return found;
  KVANT_ASSIGN(const GgufTensor* keys,
               plan.Transposed(turned, *k_b, 0, shape.latent, shape.latent, shape.heads));
  found.keys = {keys, 0, shape.nope, shape.nope};
  return found;
}

// Queries, rows [c, k_pe] and gates of a pass.
struct QueriesAndRows {
  HeadColumns queries;
  HeadColumns kv;
  graph::ResultGates gates = {};
  graph::IndexInput index = {};
};

Status AddInnerNorm(const LatentAttention& attention, std::string_view tensor, int64_t cols,
                    int64_t first, ValueId values, SublayerBuilder& builder) {
  graph::PlanBuilder& plan = builder.plan();
  graph::Norm norm = {.kind = NormKind::kRms, .epsilon = attention.epsilon};
  const std::string name = builder.Name(tensor);
  KVANT_ASSIGN(norm.weight, plan.Vector(name + ".weight", cols));
  plan.Add(RowSpace::kPass,
           graph::MakeNormPieces(plan.kernels(), name, std::move(norm), first, 1, values));
  return {};
}

// Columns of the product that reads the stream: where each part begins.
struct FirstProduct {
  std::vector<StackedMatrix> matrices;
  int64_t kv = 0;
  int64_t gates = 0;
  int64_t index_key = 0;
  int64_t index_weights = 0;
  int64_t columns = 0;

  int64_t Add(std::string_view name, int64_t rows) {
    matrices.push_back({name, rows});
    columns += rows;
    return columns - rows;
  }
};

// Whether an indexer of the layer itself chooses.
bool HasOwnIndexer(const LatentAttention& attention) {
  return attention.indexer.has_value() && !attention.indexer->reuses;
}

FirstProduct PartsOfFirstProduct(const LatentAttention& attention) {
  const LatentShape& shape = attention.shape;
  FirstProduct parts;
  if (attention.q_rank > 0) {
    parts.Add("attn_q_a", attention.q_rank);
  } else {
    parts.Add("attn_q", shape.heads * shape.head_dim());
  }
  parts.kv = parts.Add("attn_kv_a_mqa", shape.row_dim());
  if (attention.gated) parts.gates = parts.Add("attn_gate", shape.heads);
  if (!HasOwnIndexer(attention)) return parts;
  parts.index_key = parts.Add("indexer.attn_k", attention.indexer->shape.dim);
  parts.index_weights = parts.Add("indexer.proj", attention.indexer->shape.heads);
  return parts;
}

// Makes queries in a second step, with those of an indexer.
Status AddSecondProduct(const LatentAttention& attention, ValueId first, QueriesAndRows& made,
                        SublayerBuilder& builder) {
  graph::PlanBuilder& plan = builder.plan();
  const int64_t q_cols = attention.shape.heads * attention.shape.head_dim();
  std::vector<StackedMatrix> q_b = {{"attn_q_b", q_cols}};
  int64_t columns = q_cols;
  if (HasOwnIndexer(attention)) {
    const graph::IndexShape& index = attention.indexer->shape;
    q_b.push_back({"indexer.attn_q_b", index.heads * index.dim});
    columns += index.heads * index.dim;
  }
  KVANT_ASSIGN(std::vector<MatMulOperand> q_operands, builder.Separate(attention.q_rank, q_b));
  const Activations q_a =
      plan.NewActivations(builder.Name("q_a"), RowSpace::kPass, attention.q_rank, q_operands);
  graph::Norm norm = {.kind = NormKind::kRms, .epsilon = attention.epsilon};
  const std::string norm_name = builder.Name("attn_q_a_norm");
  KVANT_ASSIGN(norm.weight, plan.Vector(norm_name + ".weight", attention.q_rank));
  plan.Add(RowSpace::kPass,
           graph::MakeNorm(plan.kernels(), norm_name, std::move(norm), first, q_a));
  made.queries.value = plan.NewFloats(builder.Name("q"), RowSpace::kPass, columns);
  plan.AddMatMul(RowSpace::kPass, builder.Name("attn_q_b"), std::move(q_operands), q_a,
                 made.queries.value, cpu::Store::kSet);
  if (!HasOwnIndexer(attention)) return {};
  made.index.queries = {made.queries.value, q_cols, attention.indexer->shape.dim};
  return {};
}

// Adds the products before the attention; q_a or q, kv_a, the gates and an indexer's key and
// weights have one input and are one product.
Result<QueriesAndRows> AddProjections(const LatentAttention& attention, SublayerBuilder& builder) {
  graph::PlanBuilder& plan = builder.plan();
  const LatentShape& shape = attention.shape;
  const FirstProduct parts = PartsOfFirstProduct(attention);
  KVANT_ASSIGN(std::vector<MatMulOperand> operands,
               builder.Separate(builder.dim(), parts.matrices));
  KVANT_ASSIGN(const Activations normed, builder.AddInput("normed", operands));
  const ValueId first = plan.NewFloats(builder.Name("q_kv_a"), RowSpace::kPass, parts.columns);
  plan.AddMatMul(RowSpace::kPass, builder.Name("q_kv_a"), std::move(operands), normed, first,
                 cpu::Store::kSet);
  KVANT_TRY(AddInnerNorm(attention, "attn_kv_a_norm", shape.latent, parts.kv, first, builder));
  QueriesAndRows made;
  made.kv = {first, parts.kv, 0};
  made.queries = {first, 0, shape.head_dim()};
  made.gates = {cpu::Activation::kSigmoid, first, parts.gates, attention.gated ? shape.heads : 0};
  made.index.key = {first, parts.index_key, 0};
  made.index.weights = {first, parts.index_weights, 0};
  if (attention.q_rank > 0) KVANT_TRY(AddSecondProduct(attention, first, made, builder));
  return made;
}

bool IsInFile(const GgufTensor& tensor, std::string_view name, const SublayerBuilder& builder) {
  return tensor.name == builder.Name(name) + ".weight";
}

// Shows what stands before the attention to an observer: queries to Wk transposed where the file
// has it, latents to the matrix of Wk and Wv where it has that.
void AddObservers(const LatentMatrices& matrices, const LatentShape& shape,
                  const HeadColumns& queries, const HeadColumns& kv, SublayerBuilder& builder) {
  if (IsInFile(*matrices.absorb.tensor, "attn_k_b", builder)) {
    builder.plan().AddHeadObserver(*matrices.absorb.tensor, queries, shape.heads);
  }
  if (IsInFile(*matrices.keys.tensor, "attn_kv_b", builder)) {
    builder.plan().AddHeadObserver(*matrices.keys.tensor, kv, 1);
  }
}

// The sizes as the nodes need them.
LatentShape SizesFor(const LatentAttention& attention, const graph::PlanBuilder& plan) {
  LatentShape sizes = attention.shape;
  sizes.always_absorbed = plan.has_observer();
  if (attention.indexer.has_value()) sizes.sees_all_until = attention.indexer->shape.all_until();
  return sizes;
}

// Adds what chooses for rows, where an indexer does.
Result<graph::ChosenBy> AddChoice(const LatentAttention& attention, const graph::IndexInput& in,
                                  SublayerBuilder& builder) {
  if (!attention.indexer.has_value()) return graph::ChosenBy();
  return attention.indexer->AddNodes(in, builder);
}

// A rope of `dims` dimensions whose cosines and sines have no factor of YaRN's; what YaRN does to
// the products of queries and keys goes to `scale`.
Result<graph::RopeSpec> ReadLatentRope(const Metadata& metadata, cpu::RopeStyle style, int64_t dims,
                                       float* scale) {
  KVANT_ASSIGN(graph::RopeSpec rope, ReadRope(metadata, style, dims));
  KVANT_ASSIGN(const auto type, metadata.file().GetString(metadata.Key("rope.scaling.type")));
  if (type.value_or("") != "yarn") return rope;
  KVANT_ASSIGN(const float factor, metadata.Positive("rope.scaling.factor"));
  KVANT_ASSIGN(rope.amplitude, metadata.PositiveOr("rope.scaling.attn_factor", 1.0f));
  KVANT_ASSIGN(const float given, metadata.PositiveOr(kYarnAmplitudeKey, 1.0f));
  rope.amplitude *= given;
  if (!metadata.Has("rope.scaling.yarn_log_multiplier") || factor <= 1) return rope;
  KVANT_ASSIGN(const float multiplier, metadata.Positive("rope.scaling.yarn_log_multiplier"));
  const float magnitude = 1.0f + multiplier * std::log(factor);
  *scale *= magnitude * magnitude;
  return rope;
}

}  // namespace

Status LatentAttention::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  LatentShape sizes = SizesFor(*this, plan);
  const auto floats = [&](std::string_view name, int64_t cols) {
    return plan.NewFloats(builder.Name(name), RowSpace::kPass, cols);
  };
  KVANT_ASSIGN(const LatentMatrices matrices, FindLatentMatrices(sizes, builder));
  const StackedMatrix out_matrix[] = {{"attn_output", builder.dim()}};
  const int64_t out_cols = sizes.heads * sizes.v_dim;
  KVANT_ASSIGN(std::vector<MatMulOperand> out_operands, builder.Separate(out_cols, out_matrix));
  KVANT_ASSIGN(const QueriesAndRows made, AddProjections(*this, builder));

  const HeadColumns absorbed = {floats("absorbed", sizes.heads * sizes.row_dim()), 0,
                                sizes.row_dim()};
  const ValueId nope_records =
      plan.NewHeadRecords(builder.Name("q_nope.int8"), sizes.heads, *matrices.absorb.tensor);
  const int cache_id = builder.CacheIdOf({.kv_heads = 1,
                                          .k_dim = sizes.rope,
                                          .v_dim = sizes.latent,
                                          .rope = rope ? static_cast<int>(*rope) : -1,
                                          .latent = true,
                                          .chosen = indexer.has_value()});
  sizes.cache_id = cache_id;
  AddObservers(matrices, sizes, made.queries, made.kv, builder);
  graph::LatentStore store = {.shape = sizes,
                              .cache_id = cache_id,
                              .queries = made.queries,
                              .kv = made.kv,
                              .absorbed = absorbed,
                              .nope_records = nope_records,
                              .temperature = temperature};
  if (rope.has_value()) {
    store.rope_style = builder.rope(*rope).style;
    store.cos_sin = builder.cos_sin(*rope);
  }
  plan.Add(RowSpace::kPass, graph::MakeLatentStore(plan.kernels(), store));
  if (builder.stores_only()) return {};
  KVANT_ASSIGN(const graph::ChosenBy chosen, AddChoice(*this, made.index, builder));
  plan.Add(RowSpace::kPass,
           graph::MakeHeadMatMul(plan.kernels(), plan.float_gemm(), builder.Name("absorb"), sizes,
                                 matrices.absorb, made.queries, nope_records, absorbed));

  const HeadColumns latents = {floats("latents", sizes.heads * sizes.latent), 0, sizes.latent};
  const ValueId latent_records =
      plan.NewHeadRecords(builder.Name("latents.int8"), sizes.heads, *matrices.values.tensor);
  plan.Add(RowSpace::kPass,
           graph::MakeAbsorbedAttention(plan.kernels(), cache_id, sizes, scale, absorbed.value,
                                        made.kv, latents.value, latent_records, chosen));

  if (IsInFile(*matrices.values.tensor, "attn_v_b", builder)) {
    plan.AddHeadObserver(*matrices.values.tensor, latents, sizes.heads);
  }
  const std::string attended = builder.Name("attended");
  Activations result = plan.NewActivations(attended, RowSpace::kPass, out_cols, out_operands);
  if (result.floats == graph::kNoValue) result.floats = floats("attended", out_cols);
  plan.Add(RowSpace::kPass,
           graph::MakeHeadMatMul(plan.kernels(), plan.float_gemm(), builder.Name("values"), sizes,
                                 matrices.values, latents, latent_records,
                                 {result.floats, 0, sizes.v_dim}));
  plan.Add(RowSpace::kPass, graph::MakeExpandedAttention(
                                plan.kernels(), plan.float_gemm(), cache_id, sizes, scale,
                                matrices.keys, matrices.values, made.queries, result.floats));
  if (gated) {
    plan.Add(RowSpace::kPass, graph::MakeResultGate(plan.kernels(), attended + ".gated", made.gates,
                                                    result.floats, result));
  } else if (result.int8 != graph::kNoValue) {
    plan.Add(RowSpace::kPass, graph::MakeQuantize(plan.kernels(), attended + ".int8", result));
  }
  return builder.AddToStream("attn_output", std::move(out_operands), result);
}

Result<std::vector<LatentAttention>> ReadLatentAttentions(const Metadata& metadata,
                                                          const Stack& stack,
                                                          std::optional<cpu::RopeStyle> style,
                                                          std::vector<graph::RopeSpec>& ropes) {
  const size_t layers = stack.layers.size();
  KVANT_ASSIGN(const auto heads,
               metadata.CountPerLayer("attention.head_count", layers, kHeadsMax, {}));
  LatentAttention attention;
  LatentShape& shape = attention.shape;
  attention.epsilon = stack.final_norm.epsilon;
  KVANT_ASSIGN(attention.q_rank, metadata.CountOr("attention.q_lora_rank", kDimMax, 0));
  KVANT_ASSIGN(shape.latent, metadata.Count("attention.kv_lora_rank", kHeadDimMax));
  KVANT_ASSIGN(shape.rope, metadata.Count("rope.dimension_count", kHeadDimMax));
  const bool split = metadata.Has("attention.key_length_mla");
  const char* key_name = split ? "attention.key_length_mla" : "attention.key_length";
  const char* value_name = split ? "attention.value_length_mla" : "attention.value_length";
  KVANT_ASSIGN(const int64_t head_dim, metadata.Count(key_name, kHeadDimMax));
  KVANT_ASSIGN(const int64_t v_dim, metadata.CountOr(value_name, kHeadDimMax, 0));
  if (head_dim <= shape.rope) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: key {}: expected more than the {} rotated dimensions, found {}",
                     metadata.file().path(), metadata.Key(key_name), shape.rope, head_dim);
  }
  shape.nope = head_dim - shape.rope;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  if (style.has_value()) {
    KVANT_ASSIGN(graph::RopeSpec rope,
                 ReadLatentRope(metadata, *style, shape.rope, &attention.scale));
    attention.rope = ropes.size();
    ropes.push_back(std::move(rope));
  }
  std::vector<LatentAttention> attentions;
  for (size_t layer = 0; layer < layers; ++layer) {
    shape.heads = heads[layer];
    shape.v_dim = v_dim > 0 ? v_dim : stack.dim / shape.heads;
    if (shape.v_dim == 0 || shape.v_dim > int64_t{kHeadDimMax}) {
      return MakeError(ErrorCode::kCorrupt, "{}: key {} is missing", metadata.file().path(),
                       metadata.Key(value_name));
    }
    attentions.push_back(attention);
  }
  return attentions;
}

}  // namespace kvant::arch
