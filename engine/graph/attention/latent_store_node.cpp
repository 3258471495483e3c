// Prepares queries and rows [c, k_pe] of latent attention, between the products that make them and
// the attention: applies the rotary embedding, rotates vectors that are stored as int8, writes into
// the cache, and makes the parts of a query that the absorbed form needs.
#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "cpu/kernels/matmul.h"
#include "cpu/kernels/rope.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_kernels.h"
#include "engine/graph/attention/attention_shares.h"
#include "engine/graph/attention/latent_nodes.h"
#include "engine/kv/pass_view.h"

namespace kvant::graph {
namespace {

class LatentStoreNode final : public Node {
 public:
  LatentStoreNode(const cpu::KernelTable& kernels, const LatentStore& store)
      : Node(fmt::format("layer.{}.latent_store", store.cache_id), Reads(store), Writes(store)),
        kernels_(kernels),
        store_(store),
        shape_(store.shape) {}

  // A task is some heads of rows whose positions share no tile of keys or values with another
  // task's; the first heads' also has the rows [c, k_pe].
  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    if (pass.kv == nullptr) return RunUncached(pass, member);
    const std::span<const kv::RowTile> tiles = pass.kv->tiles();
    const int64_t pieces = (shape_.heads + kHeadsPerTask - 1) / kHeadsPerTask;
    const Range range = OwnedRange(std::ssize(tiles) * pieces, 1, member.index, member.count);
    for (int64_t task = range.begin; task < range.end; ++task) {
      const kv::RowTile& tile = tiles[static_cast<size_t>(task / pieces)];
      const Range heads = HeadsOf(task % pieces);
      for (int64_t row = tile.first_row; row < tile.first_row + tile.rows; ++row) {
        if (heads.begin == 0) Store(pass, tile.part, row);
        Prepare(pass, row, heads);
      }
    }
  }

  int64_t UnitsOf(const PassShape& pass) const override {
    return CountRowTiles(pass) * ((shape_.heads + kHeadsPerTask - 1) / kHeadsPerTask);
  }
  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], shape_.heads * shape_.head_dim() + shape_.row_dim());
  }

  std::string Describe() const override {
    return fmt::format("rope {} {} after {} + cache write of {} + {} {}", StyleName(), shape_.rope,
                       shape_.nope, shape_.latent, shape_.rope, kernels_.isa);
  }

 private:
  static constexpr int64_t kHeadsPerTask = 16;

  std::string_view StyleName() const {
    if (store_.cos_sin == kNoValue) return "none";
    return store_.rope_style == cpu::RopeStyle::kHalves ? "halves" : "interleaved";
  }

  static std::vector<ValueId> Reads(const LatentStore& store) {
    std::vector<ValueId> reads = {store.queries.value, store.kv.value};
    if (store.cos_sin != kNoValue) reads.push_back(store.cos_sin);
    return reads;
  }
  static std::vector<ValueId> Writes(const LatentStore& store) {
    std::vector<ValueId> writes = {store.queries.value, store.kv.value, store.absorbed.value};
    if (store.nope_records != kNoValue) writes.push_back(store.nope_records);
    return writes;
  }

  Range HeadsOf(int64_t piece) const {
    return {piece * kHeadsPerTask, std::min(shape_.heads, (piece + 1) * kHeadsPerTask)};
  }

  void RunUncached(const PassContext& pass, const ThreadPool::Member& member) const {
    const Range range = OwnedRange(pass.RowCount(store_.kv.value), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      RotateKey(pass, row);
      Prepare(pass, row, {0, shape_.heads});
    }
  }

  float* RotateKey(const PassContext& pass, int64_t row) const {
    float* key = pass.FloatRow(store_.kv.value, row) + store_.kv.first + shape_.latent;
    if (store_.cos_sin != kNoValue) Turn(key, pass.FloatRow(store_.cos_sin, row));
    return key;
  }

  void Turn(float* part, const float* cos_sin) const {
    kernels_.rope(part, 1, shape_.rope, shape_.rope, store_.rope_style, cos_sin);
  }

  void Store(const PassContext& pass, int part, int64_t row) const {
    float* key = RotateKey(pass, row);
    if (!pass.kv->Stores(store_.cache_id, part)) return;
    float* value = pass.FloatRow(store_.kv.value, row) + store_.kv.first;
    const kv::GroupShape& stored = pass.kv->shape(store_.cache_id);
    if (stored.rotate_keys) kernels_.rotate(key, 1, shape_.rope);
    if (stored.rotate_values) kernels_.rotate(value, 1, shape_.latent);
    // The device stores them before it attends.
    if (pass.OnDevice(store_.cache_id)) return;
    const kv::PassView::Place place =
        pass.kv->PlaceOf(store_.cache_id, 0, part, pass.positions[static_cast<size_t>(row)]);
    const cpu::KernelTable& kernels = cpu::KernelsFor(kernels_, stored.k_type, stored.v_type);
    kernels.store_key(key, shape_.rope, stored.k_type, place.key_column, place.key_tile,
                      place.key_scales);
    kernels.store_value(value, shape_.latent, stored.v_type, place.value_column, place.value_tile,
                        place.value_scales);
  }

  // Prepares some heads of a row.
  void Prepare(const PassContext& pass, int64_t row, const Range& heads) const {
    const bool absorbed = FormOf(shape_, pass) == LatentForm::kAbsorbed;
    const bool turned = pass.kv != nullptr && pass.kv->shape(store_.cache_id).rotate_keys;
    const float* cos_sin =
        store_.cos_sin != kNoValue ? pass.FloatRow(store_.cos_sin, row) : nullptr;
    const float factor = store_.temperature.FactorAt(pass.positions[static_cast<size_t>(row)]);
    for (int64_t head = heads.begin; head < heads.end; ++head) {
      float* query = pass.FloatRow(store_.queries.value, row) + store_.queries.first +
                     head * store_.queries.stride;
      float* rotated = query + shape_.nope;
      if (cos_sin != nullptr) Turn(rotated, cos_sin);
      if (store_.temperature.scale != 0) {
        for (int64_t i = 0; i < shape_.head_dim(); ++i) query[i] *= factor;
      }
      if (!absorbed) continue;
      float* target = pass.FloatRow(store_.absorbed.value, row) + store_.absorbed.first +
                      head * store_.absorbed.stride + shape_.latent;
      std::copy_n(rotated, shape_.rope, target);
      if (turned) kernels_.rotate(target, 1, shape_.rope);
      if (store_.nope_records == kNoValue) continue;
      pass.Quantize(kernels_, query, shape_.nope,
                    {store_.nope_records, row * shape_.heads + head, shape_.nope, 0});
    }
  }

  const cpu::KernelTable& kernels_;
  LatentStore store_;
  LatentShape shape_;
};

}  // namespace

std::unique_ptr<Node> MakeLatentStore(const cpu::KernelTable& kernels, const LatentStore& store) {
  return std::make_unique<LatentStoreNode>(kernels, store);
}

}  // namespace kvant::graph
