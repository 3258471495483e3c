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

Status CheckHeads(const Metadata& metadata, size_t layer, int64_t heads, int64_t kv_heads) {
  if (heads % kv_heads == 0) return {};
  return MakeError(ErrorCode::kCorrupt, "{}: layer {}: {} heads are no multiple of {} kv heads",
                   metadata.file().path(), layer, heads, kv_heads);
}

// The head size of keys or values, where the metadata do not give one.
Result<int64_t> HeadSize(const Metadata& metadata, size_t layer, int64_t dim, int64_t heads) {
  if (dim % heads == 0 && dim / heads <= int64_t{kHeadDimMax}) return dim / heads;
  return MakeError(ErrorCode::kCorrupt,
                   "{}: layer {}: dimension {} cannot be divided into {} heads",
                   metadata.file().path(), layer, dim, heads);
}

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

// The product that has the gates of all heads between their queries, and the gates.
struct Gates {
  graph::ValueId with_queries;
  graph::ValueId values;
};

Gates AddGates(const Attention& attention, SublayerBuilder& builder) {
  const int64_t columns = attention.heads * attention.k_dim;
  const int64_t rest = attention.kv_heads * (attention.k_dim + attention.v_dim);
  return {builder.plan().NewFloats(builder.Name("qkv_gates"), RowSpace::kPass, 2 * columns + rest),
          builder.plan().NewFloats(builder.Name("attn_gates"), RowSpace::kPass, columns)};
}

// The matrices of the queries, and of the keys and values that the attention makes itself.
Result<std::vector<MatMulOperand>> FindQkv(const Attention& attention, SublayerBuilder& builder) {
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
  if (shape.sees_all) {
    // The layers of an encoder have no use for each other's keys.
    layer.keeps = graph::Keeps::kEncoder;
    const std::optional<int> one = builder.plan().plan().FindCacheLayer(layer);
    stored.cache_id = one.has_value() ? *one : builder.plan().plan().AddCacheLayer(layer);
  } else {
    stored.cache_id = builder.plan().plan().AddCacheLayer(layer);
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
  KVANT_ASSIGN(std::vector<MatMulOperand> qkv_operands, FindQkv(*this, builder));
  KVANT_ASSIGN(std::vector<MatMulOperand> out_operands,
               builder.Separate(heads * v_dim, out_matrix));

  KVANT_ASSIGN(const Activations normed, builder.AddInput("normed", qkv_operands));
  graph::AttentionShape shape = ShapeOf(*this);
  shape.as_few = plan.float_gemm().as_few();
  if (sinks == Sinks::kRequired) {
    KVANT_ASSIGN(shape.sinks, plan.Vector(builder.Name("attn_sinks.weight"), heads));
  }
  if (buckets.buckets > 0) {
    KVANT_ASSIGN(shape.distances, ReadDistances(*this, builder));
  }
  const int64_t columns = keys_of.has_value() ? shape.key_column() : shape.qkv_columns();
  const graph::ValueId qkv = plan.NewFloats(builder.Name("qkv"), RowSpace::kPass, columns);
  const std::vector<float> key_offset = KeyOffsetOf(*this, shape, qkv_operands, builder);
  const Gates gates = gated ? AddGates(*this, builder) : Gates{qkv, graph::kNoValue};
  plan.AddMatMul(RowSpace::kPass, builder.Name("qkv"), std::move(qkv_operands), normed,
                 gates.with_queries, cpu::Store::kSet);
  if (gated) {
    plan.Add(RowSpace::kPass, graph::MakeSplitGates(builder.Name("attn_gates"),
                                                    {heads, k_dim, columns - shape.key_column()},
                                                    gates.with_queries, qkv, gates.values));
  }
  if (clamp > 0) {
    plan.Add(RowSpace::kPass, graph::MakeClamp(builder.Name("qkv.clamp"), clamp, qkv, columns));
  }
  const StoredKeys stored = KeysFor(*this, shape, key_offset, qkv, builder);
  const int cache_id = stored.cache_id;
  KVANT_ASSIGN(graph::HeadChanges changes, AddHeadChanges(*this, shape, qkv, builder));
  changes.key_offset = key_offset;
  const bool stores = plan.plan().name() != graph::kEmbedPlan;
  if (stores || !changes.empty_without_cache()) {
    plan.Add(RowSpace::kPass,
             graph::MakeRopeAndStore(plan.kernels(), cache_id, shape, std::move(changes), qkv));
  }

  const std::string attended = builder.Name("attended");
  Activations result = plan.NewActivations(attended, RowSpace::kPass, heads * v_dim, out_operands);
  if (result.floats == graph::kNoValue) {
    result.floats = plan.NewFloats(attended, RowSpace::kPass, result.cols);
  }
  // The attention quantizes its result itself where a kv head has whole blocks of values.
  const bool quantize_after =
      !gated && result.int8 != graph::kNoValue && !graph::QuantizesAttention(shape);
  Activations written = result;
  if (quantize_after || gated) written.int8 = graph::kNoValue;
  plan.Add(RowSpace::kPass,
           graph::MakeAttention(plan.kernels(), cache_id, shape, scale, stored.input, written));
  if (quantize_after) {
    plan.Add(RowSpace::kPass, graph::MakeQuantize(plan.kernels(), attended + ".int8", result));
  }
  if (gated) {
    plan.Add(RowSpace::kPass, graph::MakeSigmoidGate(plan.kernels(), attended + ".gated",
                                                     result.floats, gates.values, result));
  }
  return builder.AddToStream(output, std::move(out_operands), result);
}

namespace {

// Heads and kv heads of each layer; both are 0 in layers without attention.
struct HeadCounts {
  std::vector<int64_t> heads;
  std::vector<int64_t> kv_heads;
};

Result<std::vector<Attention>> ReadWithHeads(const Metadata& metadata, const Stack& stack,
                                             const HeadCounts& counts) {
  const size_t layers = stack.layers.size();
  const auto& [heads, kv_heads] = counts;
  KVANT_ASSIGN(const int64_t window, metadata.CountOr("attention.sliding_window", kContextMax, 0));
  KVANT_ASSIGN(const int64_t k_dim, metadata.CountOr("attention.key_length", kHeadDimMax, 0));
  KVANT_ASSIGN(const int64_t v_dim, metadata.CountOr("attention.value_length", kHeadDimMax, 0));
  KVANT_ASSIGN(const float scale, metadata.PositiveOr("attention.scale", 0));
  std::vector<Attention> attentions(layers);
  for (size_t i = 0; i < layers; ++i) {
    if (kv_heads[i] == 0) continue;
    KVANT_TRY(CheckHeads(metadata, i, heads[i], kv_heads[i]));
    Attention& attention = attentions[i];
    attention.heads = heads[i];
    attention.kv_heads = kv_heads[i];
    int64_t head_size = 0;
    if (k_dim == 0 || v_dim == 0) {
      KVANT_ASSIGN(head_size, HeadSize(metadata, i, stack.dim, heads[i]));
    }
    attention.k_dim = k_dim != 0 ? k_dim : head_size;
    attention.v_dim = v_dim != 0 ? v_dim : head_size;
    attention.scale = scale > 0 ? scale : 1.0f / std::sqrt(static_cast<float>(attention.k_dim));
    attention.head_norm_epsilon = stack.final_norm.epsilon;
    if (window > 0) attention.mask = {MaskKind::kWindow, window};
  }
  return attentions;
}

}  // namespace

Result<std::vector<Attention>> ReadAttentions(const Metadata& metadata, const Stack& stack) {
  const size_t layers = stack.layers.size();
  HeadCounts counts;
  KVANT_ASSIGN(counts.heads, metadata.CountPerLayer("attention.head_count", layers, kHeadsMax, {}));
  KVANT_ASSIGN(counts.kv_heads,
               metadata.CountPerLayer("attention.head_count_kv", layers, kHeadsMax, counts.heads));
  return ReadWithHeads(metadata, stack, counts);
}

namespace {

// Heads of the layers, some of which may have none.
Result<HeadCounts> ReadSomeHeads(const Metadata& metadata, size_t layers) {
  HeadCounts counts;
  KVANT_ASSIGN(counts.heads,
               metadata.CountOrNonePerLayer("attention.head_count", layers, kHeadsMax));
  KVANT_ASSIGN(counts.kv_heads,
               metadata.CountOrNonePerLayer("attention.head_count_kv", layers, kHeadsMax));
  return counts;
}

// The attentions of the layers that have kv heads.
Result<std::vector<std::optional<Attention>>> ReadWithSomeHeads(const Metadata& metadata,
                                                                const Stack& stack,
                                                                const HeadCounts& counts) {
  const size_t layers = stack.layers.size();
  for (size_t i = 0; i < layers; ++i) {
    if (counts.kv_heads[i] == 0 || counts.heads[i] > 0) continue;
    return MakeError(ErrorCode::kCorrupt, "{}: layer {}: {} kv heads, but no heads",
                     metadata.file().path(), i, counts.kv_heads[i]);
  }
  if (std::ranges::all_of(counts.kv_heads, [](int64_t count) { return count == 0; })) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected kv heads in some layer, found none",
                     metadata.file().path(), metadata.Key("attention.head_count_kv"));
  }
  KVANT_ASSIGN(const auto all, ReadWithHeads(metadata, stack, counts));
  std::vector<std::optional<Attention>> some(layers);
  for (size_t i = 0; i < layers; ++i) {
    if (counts.kv_heads[i] > 0) some[i] = all[i];
  }
  return some;
}

}  // namespace

Result<std::vector<std::optional<Attention>>> ReadSomeAttentions(const Metadata& metadata,
                                                                 const Stack& stack) {
  KVANT_ASSIGN(const HeadCounts counts, ReadSomeHeads(metadata, stack.layers.size()));
  return ReadWithSomeHeads(metadata, stack, counts);
}

Result<std::vector<std::optional<Attention>>> ReadSomeAttentions(const Metadata& metadata,
                                                                 const Stack& stack,
                                                                 const std::vector<bool>& chosen) {
  KVANT_ASSIGN(HeadCounts counts, ReadSomeHeads(metadata, stack.layers.size()));
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] && counts.kv_heads[i] == 0) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: key {}: expected kv heads in layer {}, which has attention, found none",
                       metadata.file().path(), metadata.Key("attention.head_count_kv"), i);
    }
    if (!chosen[i]) counts.kv_heads[i] = 0;
  }
  return ReadWithSomeHeads(metadata, stack, counts);
}

std::vector<float> AlibiSlopes(int64_t heads, float max_bias) {
  const int64_t below = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  const auto slope = [max_bias](int64_t number, int64_t count) {
    return static_cast<float>(std::exp2(-static_cast<double>(max_bias) *
                                        static_cast<double>(number) / static_cast<double>(count)));
  };
  std::vector<float> slopes;
  for (int64_t t = 1; t <= below; ++t) slopes.push_back(slope(t, below));
  for (int64_t t = 1; t <= heads - below; ++t) slopes.push_back(slope(2 * t - 1, 2 * below));
  return slopes;
}

Result<float> ReadMaxAlibiBias(const Metadata& metadata, float otherwise) {
  constexpr const char* kKey = "attention.max_alibi_bias";
  KVANT_ASSIGN(const auto given, metadata.file().GetF32(metadata.Key(kKey)));
  if (given == 0.0f) return 0.0f;
  return metadata.PositiveOr(kKey, otherwise);
}

Result<graph::QueryTemperature> ReadTemperature(const Metadata& metadata, const char* length_key) {
  graph::QueryTemperature temperature;
  KVANT_ASSIGN(const auto given, metadata.file().GetF32(metadata.Key(kTemperatureScaleKey)));
  if (given.value_or(0) == 0) return temperature;
  KVANT_ASSIGN(temperature.scale, metadata.Positive(kTemperatureScaleKey));
  KVANT_ASSIGN(const int64_t length, metadata.Count(length_key, kContextMax));
  temperature.length = static_cast<float>(length);
  return temperature;
}

void ScaleByWidth(const Metadata& metadata, size_t layers, int64_t dim,
                  std::vector<Attention>& attentions) {
  if (attentions.size() != layers || metadata.Has("attention.scale")) return;
  const auto heads = static_cast<float>(attentions.front().heads);
  for (Attention& attention : attentions) {
    attention.scale = 1.0f / std::sqrt(static_cast<float>(dim) / heads);
  }
}

Status ShareKeys(const Metadata& metadata, const std::vector<bool>& windows,
                 std::vector<Attention>& attentions) {
  constexpr const char* kKey = "attention.shared_kv_layers";
  KVANT_ASSIGN(const int64_t count, metadata.CountOr(kKey, kLayersMax, 0));
  const int64_t own = std::ssize(attentions) - count;
  for (size_t i = attentions.size() - static_cast<size_t>(std::min(count, std::ssize(attentions)));
       i < attentions.size(); ++i) {
    int64_t source = own - 1;
    while (source >= 0 && windows[static_cast<size_t>(source)] != windows[i]) --source;
    if (source < 0) {
      return MakeError(ErrorCode::kCorrupt,
                       "{}: key {}: {} of {} layers leave none whose keys layer {} may read, "
                       "expected one that has a window if it has one",
                       metadata.file().path(), metadata.Key(kKey), count, attentions.size(), i);
    }
    const Attention& keys = attentions[static_cast<size_t>(source)];
    attentions[i].keys_of = static_cast<size_t>(source);
    attentions[i].kv_heads = keys.kv_heads;
    attentions[i].values_are_keys = attentions[i].norm_values = false;
    KVANT_TRY(CheckHeads(metadata, i, attentions[i].heads, keys.kv_heads));
  }
  return {};
}

Result<std::vector<bool>> ReadWindowPattern(const Metadata& metadata, size_t layers,
                                            uint32_t otherwise) {
  constexpr const char* kKey = "attention.sliding_window_pattern";
  KVANT_ASSIGN(auto flags, metadata.FlagPerLayer(kKey, layers));
  if (flags.has_value()) return std::move(*flags);
  KVANT_ASSIGN(const auto number, metadata.file().GetU32(metadata.Key(kKey)));
  if (number == 0u) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected at least 1, found 0",
                     metadata.file().path(), metadata.Key(kKey));
  }
  const uint32_t pattern = number.value_or(otherwise);
  std::vector<bool> windows(layers);
  for (size_t i = 0; i < layers; ++i) windows[i] = (i + 1) % pattern != 0;
  return windows;
}

}  // namespace kvant::arch
