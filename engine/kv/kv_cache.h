// The KV cache: blocks of 32 positions in one pool per layer group, and a block table per sequence
// and group.
//
// Layers with the same window, heads, dimensions and types form a group; a block number is valid
// for all layers and heads of its group. Addresses are head-major:
//   lane(layer, K|V, head) + block * slab,
// so consecutive numbers are consecutive memory for a head and one sequence is one stream per head.
// Keys lie in tiles [k_dim][16 tokens], values as rows (cpu/kernels.h). Full groups keep every
// position. Window groups drop blocks that no future query can see, less a slack that makes short
// rewinds exact; dropped blocks are taken again by the same sequence, which makes a ring.
//
// A step is a transaction: Reserve takes all blocks, then Commit makes the rows visible or Rollback
// returns them. Thread-safety: one thread changes tables between steps; StepView is read-only
// during a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "cpu/kernels.h"
#include "engine/kv/block_pool.h"

namespace kvant::kv {

// Positions per block: two key tiles.
inline constexpr int64_t kBlockTokens = 32;

// Positions that a window group keeps beyond its window, so that rewinds of so many tokens stay
// exact.
inline constexpr int64_t kRewindSlack = 256;

struct GroupShape {
  int64_t window = 0;  // 0 = all positions
  int kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  cpu::KvElement k_type = cpu::KvElement::kF16;
  cpu::KvElement v_type = cpu::KvElement::kF16;
  std::vector<int> layers;  // of the model, ascending

  // Bytes of one position in all layers of the group.
  uint64_t bytes_per_token() const;
};

struct CacheOptions {
  std::vector<GroupShape> groups;
  int64_t context = 0;  // positions of a sequence
  int64_t chunk = 0;    // most positions of one step
};

// The positions that one sequence holds in a group.
struct BlockTable {
  int64_t first_block = 0;  // logical number of ids[0]; positions before it were dropped
  std::vector<BlockId> ids;
  int64_t first_position() const { return first_block * kBlockTokens; }
};

struct Sequence {
  int64_t length = 0;              // committed positions
  int64_t reserved = 0;            // further positions that have blocks for the step under way
  std::vector<BlockTable> tables;  // by group
};

// Adjacent blocks of a table: `count` positions from first_position, in consecutive block numbers.
struct Extent {
  BlockId block;
  int64_t first_position;
  int64_t count;
};

class Cache {
 public:
  // kOutOfMemory if the address space cannot be reserved. Memory is committed when written.
  static Result<Cache> Create(const CacheOptions& options);

  // Blocks that a group needs for one sequence at most.
  static int64_t BlocksNeeded(const GroupShape& shape, int64_t context, int64_t chunk);

  // Bytes of the pools when full.
  static uint64_t BytesNeeded(const CacheOptions& options);

  Sequence NewSequence() const;

  // Takes blocks for `tokens` more positions in every group. kContextFull beyond the context,
  // kOutOfMemory without free blocks; the sequence is unchanged then.
  Status Reserve(Sequence& sequence, int64_t tokens);
  void Commit(Sequence& sequence);
  void Rollback(Sequence& sequence);

  // Keeps the first `length` positions. kInvalid beyond the sequence; kNotSupported where a window
  // group no longer holds what the next token needs; nothing changes then.
  Status Rewind(Sequence& sequence, int64_t length);

  // The shortest length to which Rewind can go back, besides 0.
  int64_t RewindLimit(const Sequence& sequence) const;

  void Free(Sequence& sequence);

  int group_of_layer(int layer) const { return layer_places_[static_cast<size_t>(layer)].group; }
  int groups() const { return static_cast<int>(groups_.size()); }
  const GroupShape& shape(int group) const { return groups_[static_cast<size_t>(group)].shape; }
  int64_t context() const { return context_; }
  uint64_t bytes_used() const;

  // Where a lane (layer, head) of keys or values begins, and how far its blocks are apart.
  std::byte* KeyLane(int layer, int head) const;
  std::byte* ValueLane(int layer, int head) const;
  static size_t KeySlabBytes(const GroupShape& shape);
  static size_t ValueSlabBytes(const GroupShape& shape);

 private:
  struct Group {
    GroupShape shape;
    BlockPool pool;
    AlignedBuffer memory;
    size_t key_lane_bytes;
    size_t value_lane_bytes;
  };
  struct LayerPlace {
    int group = -1;
    int index = 0;  // among the layers of the group
  };

  void Shrink(Group& group, BlockTable& table, int64_t positions);
  void DropBehindWindow(Group& group, BlockTable& table, int64_t length);

  int64_t context_ = 0;
  std::vector<Group> groups_;
  std::vector<LayerPlace> layer_places_;
};

// What kernels see of a sequence during a step: its extents including the reserved positions.
class StepView {
 public:
  explicit StepView(const Cache& cache);

  // Describes the sequence with its reserved positions. Allocates nothing.
  void Set(const Sequence& sequence);

  const GroupShape& shape(int layer) const { return cache_->shape(cache_->group_of_layer(layer)); }

  // The key tile and value row of a position that is in the view.
  std::byte* KeyTile(int layer, int head, int64_t position) const;
  std::byte* ValueRow(int layer, int head, int64_t position) const;

  // Writes the runs of a lane to `out`, which holds at least runs_max() entries; returns those
  // used.
  std::span<const cpu::KvRun> Runs(int layer, int head, std::span<cpu::KvRun> out) const;
  int64_t runs_max() const { return runs_max_; }
  int64_t context() const { return cache_->context(); }

 private:
  const Extent& ExtentAt(int group, int64_t position) const;

  const Cache* cache_;
  std::vector<std::vector<Extent>> extents_;  // by group
  int64_t runs_max_ = 0;
};

}  // namespace kvant::kv
