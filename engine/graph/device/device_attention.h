// Attention of the cache layers whose blocks are a device's: the device stores a pass's keys and
// values and attends, the CPU makes queries, keys and values and goes on with the results.
//
// For a pass, Begin sends what it is: positions, blocks, and who sees what. For a node, Attend
// sends the rows, starts the kernels and brings the results back into the arena, which is pinned.
// Calls of few rows are recorded as a graph the second time that their shape comes, and replayed
// from then on: rows, pieces of work, and spans up to the next power of two. A pass of many rows
// that fills the device more than once is cut into stretches, so that the CPU goes on with one
// stretch while the device computes the next.
//
// An error stays: the pass ends with it, and so do all later ones (status()).
//
// Thread-safety: Begin on one thread between passes. Attend may be called by all members of a team
// at once: the first one drives the device, and all wait for the rows they need.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/id_vector.h"
#include "base/result.h"
#include "cuda/device.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/kv/pass_view.h"

namespace kvant::kv {
class DeviceSpace;
}

namespace kvant::graph {

// The request of an attention node.
struct DeviceAttentionCall {
  uint64_t ticket = 0;  // greater than that of every call before; the same for all members
  int cache_id = 0;
  const AttentionShape* shape = nullptr;  // lives as long as the DeviceAttention
  float scale = 0;
  bool many = false;  // the rows are many tokens of one sequence
  // Rows that begin with the queries of all heads.
  const float* rows = nullptr;
  int64_t row_count = 0;
  int64_t row_floats = 0;
  // The preparation that the rows still need; empty: none.
  std::function<void()> prepare = {};
  // `row_count` rows whose keys and values are stored: the keys of all kv heads from key_column on,
  // the values from value_column on. They may be `rows`; null: nothing is stored.
  const float* stored = nullptr;
  int64_t stored_floats = 0;
  int64_t key_column = 0;
  int64_t value_column = 0;
  float* out = nullptr;  // the results of all heads, [heads][v_dim], row by row
  int64_t out_row_floats = 0;
};

// Sizes are rounded up to a power of two, so that buffers seldom grow.
inline size_t BitCeil(int64_t number) { return std::bit_ceil(static_cast<size_t>(number)); }

// Bytes of the partial results of a call of few rows, each of which sees at most `spans` spans of
// cuda::kSpanPositions. Both are rounded up, so that buffers seldom grow.
size_t DevicePartialBytes(const AttentionShape& shape, int64_t rows, int64_t spans);

class DeviceAttention {
 public:
  // kNotSupported if the device cannot attend for a layer of the cache that it has.
  // `layers` are the cache layers of the plan.
  static Result<std::unique_ptr<DeviceAttention>> Create(std::shared_ptr<kv::DeviceSpace> space,
                                                         const kv::Cache& cache,
                                                         std::span<const CacheLayer> layers,
                                                         std::span<std::byte> arena);
  ~DeviceAttention();

  // The most that the tables of a group take while no positions are pruned.
  static size_t TableBytes(const PassLimits& limits);

  bool Has(int cache_id) const { return cache_.DeviceOf(cache_id) != nullptr; }

  // Describes a pass to the device.
  void Begin(const kv::PassView& view, std::span<const int64_t> positions);

  // The first member that calls drives the device until all rows are there. Returns when rows [0,
  // rows_needed) are.
  void Attend(const DeviceAttentionCall& call, int64_t rows_needed);

  Status status() const;

  struct Stats {
    cuda::Device::Traffic traffic;
    uint64_t replays = 0;      // calls that were one launch of a graph
    uint64_t recordings = 0;   // calls that were recorded first
    uint64_t plain_calls = 0;  // the first of their shape, launched one by one
    uint64_t long_calls = 0;   // of many rows, which are not recorded
  };
  Stats stats() const;

 private:
  // The description of a pass for the layers of a group, in pinned memory and on the device.
  struct Tables {
    cuda::Memory host;
    cuda::Memory memory;
    size_t rows_max = 0, pieces_max = 0, hidden_max = 0, spans_max = 0, entries_max = 0;
    size_t pieces = 0;
    size_t piece_rows_max = 0;
    size_t entries = 0;
    size_t spans = 0;          // of the piece that sees most
    bool of_one_part = false;  // each piece is
    int64_t layer = -1;        // a cache layer of the group

    size_t PositionsAt() const { return 0; }
    size_t BlocksAt() const { return rows_max * sizeof(int32_t); }
    size_t PiecesAt() const { return 2 * BlocksAt(); }
    size_t HiddenAt() const { return PiecesAt() + pieces_max * sizeof(cuda::Piece); }
    size_t SpansAt() const { return HiddenAt() + hidden_max * sizeof(cuda::Hidden); }
    size_t EntriesAt() const {
      return RoundUp(SpansAt() + spans_max * sizeof(int32_t), alignof(cuda::Entry));
    }
    size_t Size() const { return EntriesAt() + entries_max * sizeof(cuda::Entry); }
    template <class T>
    T* At(size_t offset) {
      return host.pointer<T>(offset);
    }
    cuda::PassTables OnDevice() const;
  };
  // A node's constants by head.
  struct Constants {
    cuda::Memory slopes, sinks, distances;
  };
  struct GraphKey {
    int cache_id;
    const AttentionShape* shape;
    int64_t rows, pieces, piece_rows, spans;
    auto operator<=>(const GraphKey&) const = default;
  };

  DeviceAttention(std::shared_ptr<kv::DeviceSpace> space, const kv::Cache& cache)
      : space_(std::move(space)), cache_(cache) {}

  Status SendTables(cuda::Device& device, const kv::PassView& view, Tables& tables,
                    std::span<const int64_t> positions);
  void FillPieces(const kv::PassView& view, Tables& tables, std::span<const int64_t> positions);
  void FillRows(const kv::PassView& view, Tables& tables, std::span<const int64_t> positions);
  // Adds what the rows of the work see to the last piece.
  void AddWork(const kv::PassView& view, const kv::PassView::Work& work, Tables& tables,
               std::span<const int64_t> positions);
  // The rows that are done once `block` thread blocks of a pass are done.
  int64_t RowsBefore(Tables& tables, int64_t block, const cuda::AttentionPlan& plan,
                     const cuda::AttentionParams& params) const;
  // Makes room; recorded graphs, which know the old addresses, go.
  Status Grow(cuda::Device& device, cuda::MemoryKind kind, cuda::Memory& memory, size_t bytes);

  Status Drive(cuda::Device& device, const DeviceAttentionCall& call);
  Status Buffers(cuda::Device& device, const DeviceAttentionCall& call, int64_t spans);
  Status RunFew(cuda::Device& device, const DeviceAttentionCall& call,
                const cuda::AttentionParams& params, const cuda::AttentionPlan& plan,
                const GraphKey& key);
  Status LaunchFew(cuda::Device& device, const DeviceAttentionCall& call,
                   const cuda::AttentionParams& params, const cuda::AttentionPlan& plan,
                   const GraphKey& key);
  Status RunMany(cuda::Device& device, const DeviceAttentionCall& call,
                 cuda::AttentionParams params, const cuda::AttentionPlan& plan);
  Status SendRows(cuda::Device& device, const DeviceAttentionCall& call,
                  const cuda::AttentionParams& params);
  Result<cuda::AttentionParams> ParamsOf(cuda::Device& device, const DeviceAttentionCall& call);
  Result<const Constants*> ConstantsOf(cuda::Device& device, const AttentionShape& shape);
  Tables& TablesOf(int cache_id);

  // Rows [0, rows) of the call are there.
  void Publish(const DeviceAttentionCall& call, int64_t rows);

  std::shared_ptr<kv::DeviceSpace> space_;
  const kv::Cache& cache_;
  cuda::Pin arena_;
  IdVector<kv::GroupId, Tables> tables_;
  std::map<const AttentionShape*, Constants> constants_;
  std::map<GraphKey, cuda::Graph> graphs_;
  cuda::Memory input_;
  cuda::Memory stored_;  // where they are no part of the input
  cuda::Memory output_;
  cuda::Memory partials_;
  Stats stats_;
  std::atomic<uint64_t> claimed_ = 0;   // the ticket of the last call that somebody drives
  std::atomic<uint64_t> progress_ = 0;  // its ticket, then the rows that are there
};

}  // namespace kvant::graph
