// Prepares an indexer's queries and keys, and stores keys in the cache.
#include <algorithm>

#include <fmt/format.h>

#include "cpu/kernels/table.h"
#include "cpu/kv_kernels.h"
#include "engine/graph/attention/attention_shares.h"
#include "engine/graph/attention/choice.h"
#include "engine/graph/attention/index_nodes.h"
#include "engine/graph/rowwise/rowwise_nodes.h"
#include "engine/kv/pass_view.h"

namespace kvant::graph {
namespace {

class IndexStoreNode final : public Node {
 public:
  IndexStoreNode(const cpu::KernelTable& kernels, const IndexStore& store)
      : Node(fmt::format("layer.{}.index_store", store.cache_id),
             {store.in.queries.value, store.in.key.value, store.cos_sin},
             {store.in.queries.value, store.in.key.value}),
        kernels_(kernels),
        store_(store) {}

  // A task is the rows of a tile, which share no key tile with another task's.
  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    if (pass.kv == nullptr) return RunUncached(pass, member);
    const std::span<const kv::RowTile> tiles = pass.kv->tiles();
    const bool chooses = Chooses(store_.shape, pass);
    const Range range = OwnedRange(std::ssize(tiles), 1, member.index, member.count);
    for (int64_t i = range.begin; i < range.end; ++i) {
      const kv::RowTile& tile = tiles[static_cast<size_t>(i)];
      for (int64_t row = tile.first_row; row < tile.first_row + tile.rows; ++row) {
        if (chooses) TurnQueries(pass, row);
        Store(pass, member, tile.part, row);
      }
    }
  }

  int64_t UnitsOf(const PassShape& pass) const override { return CountRowTiles(pass); }
  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], (store_.shape.heads + 1) * store_.shape.dim);
  }

  size_t ScratchBytes(const PassLimits&) const override {
    return store_.shape.pooled ? static_cast<size_t>(store_.n_rot) * sizeof(float) : 0;
  }

  std::string Describe() const override {
    return fmt::format("rope {} {} of {} + cache write of keys {}",
                       store_.rope_style == cpu::RopeStyle::kHalves ? "halves" : "interleaved",
                       store_.n_rot, store_.shape.dim, kernels_.isa);
  }

 private:
  void RunUncached(const PassContext& pass, const ThreadPool::Member& member) const {
    const Range range =
        OwnedRange(pass.RowCount(store_.in.key.value), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      TurnQueries(pass, row);
      TurnKey(pass, member, row);
    }
  }

  bool IsRotated(const PassContext& pass) const {
    return pass.kv != nullptr && pass.kv->shape(store_.cache_id).rotate_keys;
  }

  void Turn(const PassContext& pass, const float* cos_sin, float* vectors, int64_t count) const {
    kernels_.rope(vectors, count, store_.shape.dim, store_.n_rot, store_.rope_style, cos_sin);
    if (IsRotated(pass)) kernels_.rotate(vectors, count, store_.shape.dim);
  }

  void TurnQueries(const PassContext& pass, int64_t row) const {
    Turn(pass, pass.FloatRow(store_.cos_sin, row),
         pass.FloatRow(store_.in.queries.value, row) + store_.in.queries.first, store_.shape.heads);
  }

  // The cosines and sines of a row's key.
  const float* AnglesOfKey(const PassContext& pass, const ThreadPool::Member& member,
                           int64_t row) const {
    if (!store_.shape.pooled) return pass.FloatRow(store_.cos_sin, row);
    const int64_t first = pass.positions[static_cast<size_t>(row)] - (store_.shape.block - 1);
    auto* cos_sin = reinterpret_cast<float*>(pass.Scratch(member).data());
    WriteCosSin(pass.ropes[store_.rope], std::max<int64_t>(0, first), cos_sin);
    return cos_sin;
  }

  float* TurnKey(const PassContext& pass, const ThreadPool::Member& member, int64_t row) const {
    float* key = pass.FloatRow(store_.in.key.value, row) + store_.in.key.first;
    Turn(pass, AnglesOfKey(pass, member, row), key, 1);
    return key;
  }

  void Store(const PassContext& pass, const ThreadPool::Member& member, int part,
             int64_t row) const {
    if (!pass.kv->Stores(store_.cache_id, part)) return;
    const float* key = TurnKey(pass, member, row);
    const kv::GroupShape& stored = pass.kv->shape(store_.cache_id);
    const kv::PassView::Place place =
        pass.kv->PlaceOf(store_.cache_id, 0, part, pass.positions[static_cast<size_t>(row)]);
    cpu::KernelsFor(kernels_, stored.k_type, stored.k_type)
        .store_key(key, store_.shape.dim, stored.k_type, place.key_column, place.key_tile,
                   place.key_scales);
  }

  const cpu::KernelTable& kernels_;
  IndexStore store_;
};

}  // namespace

std::unique_ptr<Node> MakeIndexStore(const cpu::KernelTable& kernels, const IndexStore& store) {
  return std::make_unique<IndexStoreNode>(kernels, store);
}

}  // namespace kvant::graph
