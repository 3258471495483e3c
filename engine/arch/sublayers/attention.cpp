#include "engine/arch/sublayers/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "base/result.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/matmul.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/arch/sublayers/key_offset.h"
#include "engine/graph/activations.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/matmul/gate_nodes.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {
namespace {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;

// Whether the file has weights of norms of queries and keys: both or none.
bool HasHeadNorms(const Attention& attention, SublayerBuilder& builder) {
  if (attention.head_norms == HeadNorms::kNone) return false;
  return attention.head_norms == HeadNorms::kRequired ||
         builder.plan().Find(builder.Name("attn_q_norm.weight")) != nullptr ||
         builder.plan().Find(builder.Name("attn_k_norm.weight")) != nullptr;
}

Result<graph::QkNorms> ReadSharedHeadNorms(const Attention& attention, SublayerBuilder& builder) {
  graph::QkNorms norms;
  norms.epsilon = attention.head_norm_epsilon;
  if (attention.norm_values) norms.value.assign(static_cast<size_t>(attention.v_dim), 1.0f);
  if (attention.head_norms == HeadNorms::kWithoutWeights) {
    norms.query.assign(static_cast<size_t>(attention.k_dim), 1.0f);
    norms.key = norms.query;
    return norms;
  }
  KVANT_ASSIGN(norms.query,
               builder.plan().Vector(builder.Name("attn_q_norm.weight"), attention.k_dim));
  if (attention.keys_of.has_value()) return norms;
  KVANT_ASSIGN(norms.key,
               builder.plan().Vector(builder.Name("attn_k_norm.weight"), attention.k_dim));
  return norms;
}

// Norms whose weights differ from head to head, in place in `qkv`.
Status AddHeadNorms(const Attention& attention, const graph::AttentionShape& shape,
                    graph::ValueId qkv, SublayerBuilder& builder) {
  graph::PlanBuilder& plan = builder.plan();
  const auto add = [&](std::string_view tensor, int64_t heads, int64_t first) -> Status {
    const bool per_head = attention.head_norm_weights == HeadNormWeights::kPerHead;
    const int64_t pieces = per_head ? heads : 1;
    graph::Norm norm = {.kind = attention.head_norm_kind, .epsilon = attention.head_norm_epsilon};
    const std::string name = builder.Name(tensor);
    KVANT_ASSIGN(norm.weight,
                 plan.Vectors(name + ".weight", heads * attention.k_dim / pieces, pieces));
    if (attention.head_norm_kind == NormKind::kLayer && !per_head) {
      KVANT_ASSIGN(norm.bias, plan.OptionalVector(name + ".bias", heads * attention.k_dim));
    }
    plan.Add(RowSpace::kPass,
             graph::MakeNormPieces(plan.kernels(), name, std::move(norm), first, pieces, qkv));
    return {};
  };
  KVANT_TRY(add("attn_q_norm", attention.heads, 0));
  return add("attn_k_norm", attention.kv_heads, shape.key_column());
}

// The changes of heads that are made where the cache is written; others are nodes of their own.
Result<graph::HeadChanges> AddHeadChanges(const Attention& attention,
                                          const graph::AttentionShape& shape, graph::ValueId qkv,
                                          SublayerBuilder& builder) {
  graph::HeadChanges changes;
  changes.temperature = attention.temperature;
  changes.values_are_keys = attention.values_are_keys && !attention.keys_of.has_value();
  changes.queries_only = attention.keys_of.has_value();
  const bool without_weights = attention.head_norms == HeadNorms::kWithoutWeights;
  if (without_weights || HasHeadNorms(attention, builder)) {
    if (without_weights || attention.head_norm_weights == HeadNormWeights::kShared) {
      KVANT_ASSIGN(changes.norms, ReadSharedHeadNorms(attention, builder));
      changes.norm_order = attention.head_norm_order;
    } else {
      KVANT_TRY(AddHeadNorms(attention, shape, qkv, builder));
    }
  }
  if (attention.rope == Attention::kNoRope) return changes;
  changes.rope_style = builder.rope(attention.rope).style;
  changes.n_rot = builder.rope(attention.rope).n_rot;
  changes.cos_sin = builder.cos_sin(attention.rope);
  return changes;
}

// The columns of an indexer's queries and key behind all others.
int64_t IndexRows(const Attention& attention) {
  if (!attention.indexer.has_value()) return 0;
  return (attention.indexer->shape.heads + 1) * attention.indexer->shape.dim;
}

// The product that has the gates of all heads between their queries, and the gates.
struct Gates {
  graph::ValueId with_queries;
  graph::ValueId values;
};

Gates AddGates(const Attention& attention, SublayerBuilder& builder) {
  const int64_t columns = attention.heads * attention.k_dim;
  const int64_t rest =
      attention.kv_heads * (attention.k_dim + attention.v_dim) + IndexRows(attention);
  return {builder.plan().NewFloats(builder.Name("qkv_gates"), RowSpace::kPass, 2 * columns + rest),
          builder.plan().NewFloats(builder.Name("attn_gates"), RowSpace::kPass, columns)};
}

// Parts the gates from what has them between its queries, which becomes `qkv`.
void SplitGates(const Attention& attention, const Gates& gates, graph::ValueId qkv,
                SublayerBuilder& builder) {
  const int64_t rest =
      attention.kv_heads * (attention.k_dim + attention.v_dim) + IndexRows(attention);
  builder.plan().Add(
      RowSpace::kPass,
      graph::MakeSplitGates(builder.Name("attn_gates"), {attention.heads, attention.k_dim, rest},
                            gates.with_queries, qkv, gates.values));
}

// The matrices of the queries, and of the keys and values that the attention makes itself.
Result<std::vector<MatMulOperand>> FindOwnQkv(const Attention& attention,
                                              SublayerBuilder& builder) {
  const int64_t q_rows = attention.heads * attention.k_dim;
  const StackedMatrix matrices[] = {{"attn_q", attention.gated ? 2 * q_rows : q_rows},
                                    {"attn_k", attention.kv_heads * attention.k_dim},
                                    {"attn_v", attention.kv_heads * attention.v_dim}};
  const std::span<const StackedMatrix> all(matrices);
  if (attention.keys_of.has_value()) return builder.Separate(builder.dim(), all.first(1));
  if (attention.values_are_keys) return builder.Separate(builder.dim(), all.first(2));
  return attention.gated ? builder.Separate(builder.dim(), all)
                         : builder.Stacked("attn_qkv", builder.dim(), all);
}

int64_t GateRows(const Attention& attention) {
  if (!attention.gate.has_value()) return 0;
  return attention.gate->per_head ? attention.heads : attention.heads * attention.v_dim;
}

// These matrices, and behind their columns the gates of the result, then an indexer's.
Result<std::vector<MatMulOperand>> FindQkv(const Attention& attention, int64_t columns,
                                           SublayerBuilder& builder) {
  KVANT_ASSIGN(std::vector<MatMulOperand> operands, FindOwnQkv(attention, builder));
  std::vector<StackedMatrix> more;
  if (attention.gate.has_value()) more.push_back({"attn_gate", GateRows(attention)});
  if (attention.indexer.has_value()) {
    const graph::IndexShape& index = attention.indexer->shape;
    more.push_back({"indexer.q_proj", index.heads * index.dim});
    more.push_back({"indexer.k_proj", index.dim});
  }
  if (more.empty()) return operands;
  KVANT_ASSIGN(std::vector<MatMulOperand> behind, builder.Separate(builder.dim(), more));
  const int64_t gates = attention.gated ? attention.heads * attention.k_dim : 0;
  for (MatMulOperand& operand : behind) {
    operand.out_col += columns + gates;
    operands.push_back(std::move(operand));
  }
  return operands;
}

graph::IndexInput IndexInputAt(const Attention& attention, graph::ValueId qkv, int64_t column) {
  const graph::IndexShape& index = attention.indexer->shape;
  return {.queries = {qkv, column, index.dim},
          .key = {qkv, column + index.heads * index.dim, 0},
          .weights = {}};
}

graph::AttentionShape ShapeOf(const Attention& attention) {
  graph::AttentionShape shape;
  shape.heads = attention.heads;
  shape.kv_heads = attention.kv_heads;
  shape.k_dim = attention.k_dim;
  shape.v_dim = attention.v_dim;
  shape.window = attention.mask.window;
  shape.sees_all = attention.mask.kind == MaskKind::kAll;
  shape.score_cap = attention.score_cap;
  shape.bias_slopes = attention.bias_slopes;
  shape.window_kind = attention.mask.kind == MaskKind::kSections ? cpu::WindowKind::kSections
                                                                 : cpu::WindowKind::kSliding;
  return shape;
}

// The vector that keys can be stored without (key_offset.h); empty where they have no bias, where
// something comes between the bias and the cache that is not a rotation, and where scores are not
// only compared with each other.
std::vector<float> KeyOffsetOf(const Attention& attention, const graph::AttentionShape& shape,
                               std::span<const MatMulOperand> qkv, SublayerBuilder& builder) {
  const bool plain = !attention.keys_of.has_value() && !attention.gated && attention.clamp == 0 &&
                     attention.score_cap == 0 && attention.sinks == Sinks::kNone &&
                     !shape.sees_all && !HasHeadNorms(attention, builder);
  const int64_t begin = shape.key_column();
  const int64_t columns = shape.kv_heads * shape.k_dim;
  for (const MatMulOperand& operand : qkv) {
    const int64_t end = operand.out_col + std::ssize(operand.bias);
    if (!plain || operand.out_col > begin || end < begin + columns) continue;
    const auto bias =
        std::span(operand.bias)
            .subspan(static_cast<size_t>(begin - operand.out_col), static_cast<size_t>(columns));
    const bool turns = attention.rope != Attention::kNoRope;
    return MeanOfRotated(bias, shape.k_dim, turns ? &builder.rope(attention.rope) : nullptr);
  }
  return {};
}

// The keys and values that the queries of `qkv` meet: another layer's, or the ones in `qkv`, in a
// cache layer of their own.
StoredKeys KeysFor(const Attention& attention, const graph::AttentionShape& shape,
                   std::vector<float> key_offset, graph::ValueId qkv, SublayerBuilder& builder) {
  std::vector<StoredKeys>& keys = builder.shared().keys;
  if (attention.keys_of.has_value()) {
    StoredKeys stored = keys[*attention.keys_of];
    stored.input.queries = qkv;
    return stored;
  }
  const int rope = attention.rope == Attention::kNoRope ? -1 : static_cast<int>(attention.rope);
  StoredKeys& stored = keys[builder.layer()];
  graph::CacheLayer layer = {shape.window, shape.kv_heads, shape.k_dim,
                             shape.v_dim,  rope,           shape.window_kind};
  layer.key_offset = std::move(key_offset);
  layer.chosen = attention.indexer.has_value();
  if (shape.sees_all) {
    // The layers of an encoder have no use for each other's keys.
    layer.keeps = graph::Keeps::kEncoder;
    const std::optional<int> one = builder.plan().plan().FindCacheLayer(layer);
    stored.cache_id = one.has_value() ? *one : builder.plan().plan().AddCacheLayer(layer);
  } else {
    stored.cache_id = builder.CacheIdOf(layer);
  }
  stored.input = {qkv, qkv, shape.key_column(), shape.value_column()};
  return stored;
}

// The learned number of each distance, up to the distance beyond which all share one.
Result<graph::DistanceTable> ReadDistances(const Attention& attention, SublayerBuilder& builder) {
  const DistanceBuckets& buckets = attention.buckets;
  std::string name = builder.Name("attn_rel_b.weight");
  if (builder.plan().Find(name) == nullptr) name = builder.FirstLayerName("attn_rel_b.weight");
  // [bucket][head]
  KVANT_ASSIGN(const graph::WeightVector learned,
               builder.plan().Vectors(name, attention.heads, buckets.buckets));
  graph::DistanceTable table;
  table.least = -buckets.distance_max;
  table.count = buckets.distance_max + 1;
  if (attention.mask.kind == MaskKind::kAll) table.count += buckets.distance_max;
  constexpr int64_t kPadding = cpu::kDistancePadding;
  for (int64_t head = 0; head < attention.heads; ++head) {
    for (int64_t i = -kPadding; i < table.count + kPadding; ++i) {
      const int64_t distance = table.least + std::clamp<int64_t>(i, 0, table.count - 1);
      const int64_t bucket = DistanceBucket(buckets, attention.mask.kind, distance);
      table.values.push_back(learned[static_cast<size_t>(bucket * attention.heads + head)]);
    }
  }
  return table;
}

// Reads what else takes part in scores, and how they are computed.
Status ReadScoreParts(const Attention& attention, SublayerBuilder& builder,
                      graph::AttentionShape& shape) {
  graph::PlanBuilder& plan = builder.plan();
  shape.as_few = plan.float_gemm().as_few();
  if (attention.sinks == Sinks::kRequired) {
    KVANT_ASSIGN(shape.sinks, plan.Vector(builder.Name("attn_sinks.weight"), attention.heads));
  }
  if (attention.buckets.buckets > 0) {
    KVANT_ASSIGN(shape.distances, ReadDistances(attention, builder));
  }
  return {};
}

// Norms the result of all heads in place.
Status AddResultNorm(const Norm& norm, const Activations& result, SublayerBuilder& builder) {
  graph::PlanBuilder& plan = builder.plan();
  KVANT_ASSIGN(graph::Norm read, ReadNorm(plan, norm, builder.Name(""), result.cols));
  plan.Add(RowSpace::kPass, graph::MakeNorm(plan.kernels(), builder.Name("attn_sub_norm"),
                                            std::move(read), result.floats, result));
  return {};
}

}  // namespace

int64_t DistanceBucket(const DistanceBuckets& buckets, MaskKind mask, int64_t distance) {
  const bool both = mask == MaskKind::kAll;
  const int64_t count = both ? buckets.buckets / 2 : buckets.buckets;
  const int64_t first = both && distance > 0 ? count : 0;
  const int64_t away = both ? std::abs(distance) : std::max<int64_t>(0, -distance);
  const int64_t exact = count / 2;
  if (away < exact) return first + away;
  const auto start = static_cast<float>(exact);
  const float widths = std::log(static_cast<float>(away) / start) /
                       static_cast<float>(std::log(static_cast<double>(buckets.distance_max) /
                                                   static_cast<double>(exact))) *
                       static_cast<float>(count - exact);
  return first + std::min(count - 1, exact + static_cast<int64_t>(widths));
}

Status Attention::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  const StackedMatrix out_matrix[] = {{output, builder.dim()}};
  graph::AttentionShape shape = ShapeOf(*this);
  const int64_t columns = keys_of.has_value() ? shape.key_column() : shape.qkv_columns();
  KVANT_ASSIGN(std::vector<MatMulOperand> qkv_operands, FindQkv(*this, columns, builder));
  KVANT_ASSIGN(std::vector<MatMulOperand> out_operands,
               builder.Separate(heads * v_dim, out_matrix));

  KVANT_ASSIGN(const Activations normed, builder.AddInput("normed", qkv_operands));
  KVANT_TRY(ReadScoreParts(*this, builder, shape));
  const graph::ValueId qkv = plan.NewFloats(builder.Name("qkv"), RowSpace::kPass,
                                            columns + GateRows(*this) + IndexRows(*this));
  const std::vector<float> key_offset = KeyOffsetOf(*this, shape, qkv_operands, builder);
  const Gates gates = gated ? AddGates(*this, builder) : Gates{qkv, graph::kNoValue};
  plan.AddMatMul(RowSpace::kPass, builder.Name("qkv"), std::move(qkv_operands), normed,
                 gates.with_queries, cpu::Store::kSet);
  if (gated) SplitGates(*this, gates, qkv, builder);
  if (clamp > 0) {
    plan.Add(RowSpace::kPass, graph::MakeClamp(builder.Name("qkv.clamp"), clamp, qkv, columns));
  }
  StoredKeys stored = KeysFor(*this, shape, key_offset, qkv, builder);
  const int cache_id = stored.cache_id;
  KVANT_ASSIGN(graph::HeadChanges changes, AddHeadChanges(*this, shape, qkv, builder));
  changes.key_offset = key_offset;
  const bool stores = plan.plan().name() != graph::kEmbedPlan;
  if (stores || !changes.empty_without_cache()) {
    plan.Add(RowSpace::kPass,
             graph::MakeRopeAndStore(plan.kernels(), cache_id, shape, std::move(changes), qkv));
  }
  if (builder.stores_only()) return {};

  if (indexer.has_value()) {
    KVANT_ASSIGN(const graph::ChosenBy chosen,
                 indexer->AddNodes(IndexInputAt(*this, qkv, columns + GateRows(*this)), builder));
    shape.index = chosen.index;
    stored.input.choice = chosen.choice;
  }

  const std::string attended = builder.Name("attended");
  Activations result = plan.NewActivations(attended, RowSpace::kPass, heads * v_dim, out_operands);
  if (result.floats == graph::kNoValue) {
    result.floats = plan.NewFloats(attended, RowSpace::kPass, result.cols);
  }
  // The attention quantizes its result itself where a kv head has whole blocks of values.
  const bool has_gates = gated || gate.has_value();
  const bool changes_result = has_gates || result_norm.has_value();
  const bool quantize_after =
      !changes_result && result.int8 != graph::kNoValue && !graph::QuantizesAttention(shape);
  Activations written = result;
  if (quantize_after || changes_result) written.int8 = graph::kNoValue;
  plan.Add(RowSpace::kPass,
           graph::MakeAttention(plan.kernels(), cache_id, shape, scale, stored.input, written));
  if (quantize_after) {
    plan.Add(RowSpace::kPass, graph::MakeQuantize(plan.kernels(), attended + ".int8", result));
  }
  if (has_gates) {
    const graph::ResultGates of =
        gated ? graph::ResultGates{cpu::Activation::kSigmoid, gates.values, 0, heads * v_dim}
              : graph::ResultGates{gate->activation, qkv, columns, GateRows(*this)};
    plan.Add(RowSpace::kPass,
             graph::MakeResultGate(plan.kernels(), attended + ".gated", of, result.floats, result));
  }
  if (result_norm.has_value()) KVANT_TRY(AddResultNorm(*result_norm, result, builder));
  return builder.AddToStream(output, std::move(out_operands), result);
}

}  // namespace kvant::arch
