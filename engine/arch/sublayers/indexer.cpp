#include "engine/arch/sublayers/indexer.h"

#include <cmath>
#include <string>

#include "cpu/kv_format_list.h"
#include "engine/arch/norm.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/attention/choice.h"
#include "engine/graph/recurrent/recurrent_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"
#include "engine/limits.h"

namespace kvant::arch {
namespace {

using graph::RowSpace;

// The most positions or blocks that a row may be given.
constexpr uint32_t kIndexTopMax = 1 << 20;

Status AddVectorNorm(NormKind kind, std::string_view tensor, float epsilon,
                     const graph::HeadColumns& of, int64_t dim, int64_t count,
                     SublayerBuilder& builder) {
  graph::PlanBuilder& plan = builder.plan();
  KVANT_ASSIGN(graph::Norm norm, ReadNorm(plan, {kind, tensor, epsilon}, builder.Name(""), dim));
  // All vectors have the weights of one.
  const std::vector<float> weight = norm.weight;
  for (int64_t i = 1; i < count; ++i) {
    norm.weight.insert(norm.weight.end(), weight.begin(), weight.end());
  }
  plan.Add(RowSpace::kPass, graph::MakeNormPieces(plan.kernels(), builder.Name(tensor),
                                                  std::move(norm), of.first, count, of.value));
  return {};
}

}  // namespace

graph::IndexInput Indexer::AddMeanKeys(const graph::IndexInput& in,
                                       SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  graph::CausalConv mean = {.taps = shape.block, .cols = shape.dim, .first = in.key.first};
  mean.weights.assign(static_cast<size_t>(shape.block * shape.dim),
                      1.0f / static_cast<float>(shape.block));
  const std::string name = builder.Name("indexer.k_mean");
  const int cache_id = plan.plan().AddCacheLayer({.state_floats = mean.state_floats()});
  const graph::ValueId keys = plan.NewFloats(name, RowSpace::kPass, shape.dim);
  plan.Add(RowSpace::kPass,
           graph::MakeCausalConv(plan.kernels(), name, std::move(mean), {.cache_id = cache_id},
                                 in.key.value, {.floats = keys, .cols = shape.dim}));
  return {.queries = in.queries, .key = {keys, 0, 0}, .weights = in.weights};
}

Result<graph::ChosenBy> Indexer::AddNodes(const graph::IndexInput& rows,
                                          SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  graph::ValueId& choice = builder.shared().choice;
  if (reuses) return graph::ChosenBy{shape, choice};
  const graph::IndexInput in = shape.pooled ? AddMeanKeys(rows, builder) : rows;
  const bool norms_queries = shape.per_head || shape.pooled;
  const NormKind kind = norms_queries ? NormKind::kRms : NormKind::kLayer;
  KVANT_TRY(AddVectorNorm(kind, "indexer.k_norm", epsilon, in.key, shape.dim, 1, builder));
  if (norms_queries) {
    KVANT_TRY(AddVectorNorm(kind, "indexer.q_norm", epsilon, in.queries, shape.dim, shape.heads,
                            builder));
  }
  const graph::RopeSpec& rotation = builder.rope(rope);
  graph::CacheLayer keys = {.kv_heads = 1, .k_dim = shape.dim, .rope = static_cast<int>(rope)};
  const int cache_id = plan.plan().AddCacheLayer(keys);
  plan.Add(RowSpace::kPass, graph::MakeIndexStore(plan.kernels(), {.shape = shape,
                                                                   .cache_id = cache_id,
                                                                   .rope_style = rotation.style,
                                                                   .n_rot = rotation.n_rot,
                                                                   .cos_sin = builder.cos_sin(rope),
                                                                   .rope = rope,
                                                                   .in = in}));
  choice = plan.NewFloats(builder.Name("choice"), RowSpace::kPass, graph::ChoiceColumns(shape));
  const int64_t scaled_by = shape.pooled ? shape.dim : shape.heads * shape.dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(scaled_by));
  plan.Add(RowSpace::kPass, graph::MakeChoose(plan.kernels(), cache_id, shape, in, scale, choice));
  return graph::ChosenBy{shape, choice};
}

Result<Indexer> ReadIndexer(const Metadata& metadata, IndexUnits units) {
  if (metadata.predicting() == PredictingLayers::kRead) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: layers that predict further tokens are not supported beside an indexer",
                     metadata.file().path());
  }
  Indexer indexer;
  KVANT_ASSIGN(indexer.shape.heads, metadata.Count("attention.indexer.head_count", kHeadsMax));
  KVANT_ASSIGN(indexer.shape.dim, metadata.Count("attention.indexer.key_length", kHeadDimMax));
  KVANT_ASSIGN(indexer.shape.top_k, metadata.Count("attention.indexer.top_k", kIndexTopMax));
  if (units == IndexUnits::kPositions) return indexer;
  constexpr const char* kBlockKey = "attention.indexer.block_size";
  indexer.shape.per_head = true;
  KVANT_ASSIGN(indexer.shape.block, metadata.Count(kBlockKey, kIndexTopMax));
  KVANT_ASSIGN(indexer.shape.local,
               metadata.CountOr("attention.indexer.local_blocks", kIndexTopMax, 0));
  if (indexer.shape.local > indexer.shape.top_k) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected at most {}, found {}",
                     metadata.file().path(), metadata.Key("attention.indexer.local_blocks"),
                     indexer.shape.top_k, indexer.shape.local);
  }
  if (indexer.shape.block % cpu::kKeyTileTokens != 0) {
    return MakeError(ErrorCode::kNotSupported, "{}: key {}: expected a multiple of {}, found {}",
                     metadata.file().path(), metadata.Key(kBlockKey), int64_t{cpu::kKeyTileTokens},
                     indexer.shape.block);
  }
  return indexer;
}

Result<Indexer> ReadPoolIndexer(const Metadata& metadata, int64_t block) {
  KVANT_ASSIGN(Indexer indexer, ReadIndexer(metadata, IndexUnits::kPositions));
  graph::IndexShape& shape = indexer.shape;
  if (shape.top_k % block != 0) {
    return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected a multiple of {}, found {}",
                     metadata.file().path(), metadata.Key("attention.indexer.top_k"), block,
                     shape.top_k);
  }
  shape.pooled = true;
  shape.block = block;
  shape.top_k /= block;
  return indexer;
}

size_t RopeOfIndexer(cpu::RopeStyle style, size_t of_attention,
                     std::vector<graph::RopeSpec>& ropes) {
  if (ropes[of_attention].style == style) return of_attention;
  graph::RopeSpec rope = ropes[of_attention];
  rope.style = style;
  ropes.push_back(std::move(rope));
  return ropes.size() - 1;
}

Status CheckRotation(const Metadata& metadata, const Indexer& indexer,
                     const std::vector<graph::RopeSpec>& ropes) {
  if (ropes[indexer.rope].n_rot <= indexer.shape.dim) return {};
  return MakeError(ErrorCode::kCorrupt, "{}: key {}: expected at least {}, found {}",
                   metadata.file().path(), metadata.Key("attention.indexer.key_length"),
                   ropes[indexer.rope].n_rot, indexer.shape.dim);
}

Result<std::optional<std::vector<bool>>> ReadIndexerTypes(const Metadata& metadata, size_t layers) {
  constexpr const char* kKey = "attention.indexer.types";
  KVANT_ASSIGN(auto own, metadata.FlagPerLayer(kKey, layers));
  if (!own.has_value() || own->front()) return own;
  return MakeError(ErrorCode::kCorrupt,
                   "{}: key {}: expected an indexer in the first layer, found none",
                   metadata.file().path(), metadata.Key(kKey));
}

}  // namespace kvant::arch
