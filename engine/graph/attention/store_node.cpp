// Prepares queries, keys and values between their product and the attention: norms heads, applies
// the rotary embedding, rotates vectors that are stored as int8, and writes into the cache.
#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "cpu/kernels/matmul.h"
#include "cpu/kernels/rope.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_kernels.h"
#include "engine/graph/activations.h"
#include "engine/graph/attention/attention_nodes.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/attention/attention_shares.h"
#include "engine/graph/plan.h"
#include "engine/kv/pass_view.h"

namespace kvant::graph {
namespace {

class RopeAndStoreNode final : public Node {
 public:
  RopeAndStoreNode(const cpu::KernelTable& kernels, int cache_id, const AttentionShape& shape,
                   HeadChanges changes, ValueId qkv)
      : Node(fmt::format("layer.{}.rope_store", cache_id), Reads(changes, qkv), {qkv}),
        kernels_(kernels),
        cache_id_(cache_id),
        shape_(shape),
        changes_(std::move(changes)),
        qkv_(qkv) {}

  // A task is one kv head with its query heads, and rows whose positions share no key tile with
  // another task's.
  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    if (pass.kv == nullptr) return RunUncached(pass, member);
    const std::span<const kv::RowTile> tiles = pass.kv->tiles();
    const int64_t tasks = static_cast<int64_t>(tiles.size()) * shape_.kv_heads;
    const Range range = OwnedRange(tasks, 1, member.index, member.count);
    for (int64_t task = range.begin; task < range.end; ++task) {
      const kv::RowTile& tile = tiles[static_cast<size_t>(task / shape_.kv_heads)];
      for (int64_t row = tile.first_row; row < tile.first_row + tile.rows; ++row) {
        const Heads heads = HeadsOf(pass, row, task % shape_.kv_heads);
        NormAndRope(pass, row, heads);
        TurnForCache(pass, heads);
        if (!changes_.queries_only) Store(pass, tile.part, row, heads);
      }
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], shape_.qkv_columns());
  }
  int64_t UnitsOf(const PassShape& pass) const override {
    return CountRowTiles(pass) * shape_.kv_heads;
  }

  std::string Describe() const override {
    std::string text;
    if (changes_.values_are_keys) text += "values of keys + ";
    if (!changes_.norms.query.empty()) text += "rms_norm of heads + ";
    if (changes_.cos_sin != kNoValue) {
      text += fmt::format("rope {} {} of {} + ",
                          changes_.rope_style == cpu::RopeStyle::kHalves ? "halves" : "interleaved",
                          changes_.n_rot, shape_.k_dim);
    }
    if (changes_.temperature.scale != 0) text += "queries by position + ";
    return text + fmt::format("{} {}", changes_.queries_only ? "no cache write" : "cache write",
                              kernels_.isa);
  }

 private:
  // Where the vectors of one row and one kv head lie in qkv.
  struct Heads {
    float* queries;  // [HeadsPerKv][k_dim]
    float* key;      // [k_dim]; null where there are queries only
    float* value;    // [v_dim]; likewise
    int kv_head;
  };

  static std::vector<ValueId> Reads(const HeadChanges& changes, ValueId qkv) {
    if (changes.cos_sin == kNoValue) return {qkv};
    return {qkv, changes.cos_sin};
  }

  Heads HeadsOf(const PassContext& pass, int64_t row, int64_t kv_head) const {
    float* qkv = pass.FloatRow(qkv_, row);
    float* queries = qkv + kv_head * shape_.HeadsPerKv() * shape_.k_dim;
    if (changes_.queries_only) return {queries, nullptr, nullptr, static_cast<int>(kv_head)};
    return {queries, qkv + shape_.key_column() + kv_head * shape_.k_dim,
            qkv + shape_.value_column() + kv_head * shape_.v_dim, static_cast<int>(kv_head)};
  }

  void RunUncached(const PassContext& pass, const ThreadPool::Member& member) const {
    const Range range = OwnedRange(pass.RowCount(qkv_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      for (int64_t head = 0; head < shape_.kv_heads; ++head)
        NormAndRope(pass, row, HeadsOf(pass, row, head));
      if (is_of_source()) KeepForDecoder(pass, row);
    }
  }

  // Whether it stores what a decoder's layer reads of a source: then there are no queries.
  bool is_of_source() const { return shape_.heads == 0; }

  void KeepForDecoder(const PassContext& pass, int64_t row) const {
    std::vector<float>& kept = pass.source->layers[static_cast<size_t>(cache_id_)];
    const int64_t columns = shape_.qkv_columns();
    std::copy_n(pass.FloatRow(qkv_, row), columns, kept.data() + row * columns);
  }

  // The model's norms and its rotation by position.
  void NormAndRope(const PassContext& pass, int64_t row, const Heads& heads) const {
    if (changes_.values_are_keys) std::copy_n(heads.key, shape_.k_dim, heads.value);
    if (changes_.norm_order == NormOrder::kBeforeRope) Normalize(heads);
    if (changes_.cos_sin != kNoValue) Rotate(pass.FloatRow(changes_.cos_sin, row), heads);
    if (changes_.norm_order == NormOrder::kAfterRope) Normalize(heads);
    if (changes_.temperature.scale != 0) {
      HeatQueries(pass.positions[static_cast<size_t>(row)], heads);
    }
  }

  void HeatQueries(int64_t position, const Heads& heads) const {
    const float factor = changes_.temperature.FactorAt(position);
    float* end = heads.queries + shape_.HeadsPerKv() * shape_.k_dim;
    for (float* value = heads.queries; value != end; ++value) *value *= factor;
  }

  void Normalize(const Heads& heads) const {
    for (int64_t head = 0; head < shape_.HeadsPerKv(); ++head)
      NormalizeVector(changes_.norms.query, heads.queries + head * shape_.k_dim);
    if (changes_.queries_only) return;
    NormalizeVector(changes_.norms.key, heads.key);
    NormalizeVector(changes_.norms.value, heads.value);
  }

  void NormalizeVector(const WeightVector& weight, float* vector) const {
    if (weight.empty()) return;
    kernels_.rms_norm(vector, weight.data(), std::ssize(weight), changes_.norms.epsilon, vector);
  }

  void Rotate(const float* cos_sin, const Heads& heads) const {
    const auto rotate = [&](float* vectors, int64_t count) {
      kernels_.rope(vectors, count, shape_.k_dim, changes_.n_rot, changes_.rope_style, cos_sin);
    };
    rotate(heads.queries, shape_.HeadsPerKv());
    if (!changes_.queries_only) rotate(heads.key, 1);
  }

  // The offset and the Hadamard rotation of vectors that the cache stores as codes.
  void TurnForCache(const PassContext& pass, const Heads& heads) const {
    const kv::GroupShape& stored = pass.kv->shape(cache_id_);
    if (!changes_.queries_only && !changes_.key_offset.empty() && stored.shifts_keys()) {
      const float* offset = changes_.key_offset.data() + heads.kv_head * shape_.k_dim;
      for (int64_t d = 0; d < shape_.k_dim; ++d) heads.key[d] -= offset[d];
    }
    if (!stored.rotate_keys) return;
    kernels_.rotate(heads.queries, shape_.HeadsPerKv(), shape_.k_dim);
    if (!changes_.queries_only) kernels_.rotate(heads.key, 1, shape_.k_dim);
  }

  void Store(const PassContext& pass, int part, int64_t row, const Heads& heads) const {
    if (!pass.kv->Stores(cache_id_, part)) return;
    const kv::GroupShape& stored = pass.kv->shape(cache_id_);
    if (stored.rotate_values) kernels_.rotate(heads.value, 1, shape_.v_dim);
    // The device stores them before it attends.
    if (pass.OnDevice(cache_id_)) return;
    const kv::PassView::Place place =
        pass.kv->PlaceOf(cache_id_, heads.kv_head, part, pass.positions[static_cast<size_t>(row)]);
    const cpu::KernelTable& kernels = cpu::KernelsFor(kernels_, stored.k_type, stored.v_type);
    kernels.store_key(heads.key, shape_.k_dim, stored.k_type, place.key_column, place.key_tile,
                      place.key_scales);
    kernels.store_value(heads.value, shape_.v_dim, stored.v_type, place.value_column,
                        place.value_tile, place.value_scales);
  }

  const cpu::KernelTable& kernels_;
  int cache_id_;
  AttentionShape shape_;
  HeadChanges changes_;
  ValueId qkv_;
};

}  // namespace

std::unique_ptr<Node> MakeRopeAndStore(const cpu::KernelTable& kernels, int cache_id,
                                       const AttentionShape& shape, HeadChanges changes,
                                       ValueId qkv) {
  return std::make_unique<RopeAndStoreNode>(kernels, cache_id, shape, std::move(changes), qkv);
}

}  // namespace kvant::graph
