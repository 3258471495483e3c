// The sizes and the mask of an attention, and where a row holds its vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "cpu/kernels/attention.h"
#include "engine/graph/plan.h"

namespace kvant::graph {

// Sizes of latent attention (latent_nodes.h): a query head has `nope` values that are not rotated
// and then `rope` values that are; a position has a latent and `rope` rotated values.
struct LatentShape {
  int64_t heads = 0;
  int64_t nope = 0;
  int64_t rope = 0;
  int64_t latent = 0;
  int64_t v_dim = 0;  // of what a head gives
  // An observer wants to see what the matrices of the absorbed form are multiplied with.
  bool always_absorbed = false;
  int cache_id = 0;  // of the layer
  // Rows from this position on see what an indexer has chosen for them, in absorbed form; 0: there
  // is no indexer.
  int64_t sees_all_until = 0;

  int64_t head_dim() const { return nope + rope; }
  int64_t row_dim() const { return latent + rope; }
};

enum class LatentForm : uint8_t { kAbsorbed, kExpanded };

// An indexer, which chooses what each row sees: the `top_k` units of positions with the best
// scores. A row that has no more units sees all of them. Equal scores go to the earlier unit.
struct IndexShape {
  int64_t heads = 0;
  int64_t dim = 0;
  int64_t top_k = 0;
  int64_t block = 1;  // positions of a unit, whose score is the best of its positions
  int64_t local = 0;  // the last units of a row, with its own, that are chosen whatever they score
  // Every head chooses, by its products, for as many kv heads as there are for each; or else all
  // heads choose together, by the weighted sum of their products above zero.
  bool per_head = false;
  // A unit has one key, the mean of its positions' keys, in the place of its last position. A row's
  // last unit is chosen besides the top_k others as long as it lacks positions.
  bool pooled = false;

  int64_t choices() const { return per_head ? heads : 1; }
  // The most units that a row is given.
  int64_t units_max() const { return pooled ? top_k + 1 : top_k; }
  // Rows at positions below this one see all.
  int64_t all_until() const { return pooled ? (top_k + 1) * block - 1 : top_k * block; }
  int64_t units(int64_t positions) const { return (positions + block - 1) / block; }
};

// The terms that distances add to the scores of all heads: see cpu::DistanceBias.
struct DistanceTable {
  int64_t least = 0;
  int64_t count = 0;
  std::vector<float> values = {};  // [heads][count + 2 * cpu::kDistancePadding]; empty: nothing
};

// Heads and mask of an attention.
struct AttentionShape {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  int64_t window = 0;   // positions a query sees at most, itself included; 0 = all; see sees_all
  float score_cap = 0;  // score = score_cap * tanh(score / score_cap); 0 = no cap
  // ALiBi: what a position away takes off a head's score, [heads]; empty: nothing.
  std::vector<float> bias_slopes = {};
  cpu::WindowKind window_kind = cpu::WindowKind::kSliding;
  // A score of each head that takes part in the softmax and has no value, [heads]; empty: none.
  std::vector<float> sinks = {};
  // Every row sees all positions that the cache layer holds, a source's, or all of its own text;
  // with a window those of a text that are at most window / 2 away.
  bool sees_all = false;
  DistanceTable distances = {};
  // Latent attention in absorbed form: a key is the position's value, followed by k_dim more
  // values. All heads share the keys and values, so kv_heads only says in how many tasks the heads
  // are taken.
  std::optional<LatentShape> latent = {};
  bool as_few = false;                   // cpu::FloatGemm::as_few
  std::optional<IndexShape> index = {};  // rows see what AttentionInput::choice says

  int64_t query_dim() const { return latent.has_value() ? v_dim + k_dim : k_dim; }
  int64_t HeadsPerKv() const { return heads / kv_heads; }
  // The heads of the cache layer.
  int64_t cached_heads() const { return latent.has_value() ? 1 : kv_heads; }
  // A row of qkv is [heads][k_dim] queries, [kv_heads][k_dim] keys, [kv_heads][v_dim] values.
  int64_t key_column() const { return heads * k_dim; }
  int64_t value_column() const { return key_column() + kv_heads * k_dim; }
  int64_t qkv_columns() const { return value_column() + kv_heads * v_dim; }
  // The rows that a row sees of a text of `rows` rows, or of a source.
  Range SeenInText(int64_t row, int64_t rows) const {
    if (!sees_all) return {FirstVisible(row), row + 1};
    if (window == 0) return {0, rows};
    return {std::max<int64_t>(0, row - window / 2), std::min(rows, row + window / 2 + 1)};
  }
  // The first position that a query at `position` sees.
  int64_t FirstVisible(int64_t position) const {
    return cpu::FirstInWindow(window_kind, window, position);
  }
};

// The places of a row's vectors. A pass without cache reads keys and values from `kv`.
struct AttentionInput {
  ValueId queries = kNoValue;  // [heads][query_dim] from column 0 on
  ValueId kv = kNoValue;       // kNoValue: those of PassContext::source
  int64_t key_column = 0;
  int64_t value_column = 0;
  ValueId choice = kNoValue;  // of AttentionShape::index (choice.h)

  std::vector<ValueId> ids() const;
};

}  // namespace kvant::graph
