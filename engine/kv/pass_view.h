// The cache during one pass, as kernels see it: for every part of the pass, where its rows are
// stored, and for every group the attention work, each piece with the runs of blocks that its rows
// may see.
//
// Parts that follow each other and begin with the same block are a cluster and are attended to
// together: every block is then in one run with a bit for each row that may see it, so what
// sequences share is read once. Set allocates nothing; the view is read-only while the pass runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cpu/kernels/attention.h"
#include "cpu/kv_format_list.h"
#include "engine/kv/kv_cache.h"

namespace kvant::kv {

// The most query rows of one piece of attention work, and the most rows of a RowTile.
inline constexpr int64_t kRowTile = 32;

// A part of the pass, as rows: the tokens at the positions [length, length + reserved) of its
// sequence.
struct PartRows {
  const Sequence* sequence;
  int64_t first_row;
  int64_t rows;
};

// Rows of one part whose positions lie in key tiles and value tiles that no other RowTile touches,
// so that threads can store RowTiles at the same time.
struct RowTile {
  int part;
  int64_t first_row;
  int64_t rows;
};

class PassView {
 public:
  // Makes a view for passes of at most `parts` parts and `rows` rows. The pass of a source that is
  // being encoded has one part, with a sequence of no positions that has the source's tables.
  PassView(const Cache& cache, int64_t parts, int64_t rows);

  // Describes sequences with their reserved positions, in the order of their rows.
  void Set(std::span<const PartRows> parts);

  GroupId group_of_layer(int layer) const { return cache_->group_of_layer(layer); }
  const GroupShape& shape(int layer) const { return cache_->shape(group_of_layer(layer)); }

  // The rows of the pass.
  std::span<const RowTile> tiles() const { return tiles_; }
  std::span<const PartRows> parts() const { return parts_; }

  // Where a part's state of a cache layer lies before the pass (null: there were no positions), and
  // where the pass leaves that after its rows.
  struct StatePlace {
    const float* before;
    float* after;
  };
  StatePlace StateOf(int layer, int part) const;
  // The type in which the scans of a layer with a state keep their values.
  KvType StateType(int layer) const { return shape(layer).k_type; }

  // Where a token of a tile's part stores its key and value.
  struct Place {
    std::byte* key_tile;
    int key_column;
    std::byte* key_scales;
    std::byte* value_tile;
    int value_column;
    std::byte* value_scales;
  };
  Place PlaceOf(int layer, int head, int part, int64_t position) const;
  // The block that it is in.
  BlockId BlockOf(int layer, int part, int64_t position) const;
  // Whether the part's rows are to be stored. False where a replay leaves the layer's group alone,
  // because the group still holds the positions.
  bool Stores(int layer, int part) const {
    const Sequence& sequence = *parts_[static_cast<size_t>(part)].sequence;
    const GroupId group = group_of_layer(layer);
    return cache_->policy(group).holds() == Holds::kSource ||
           sequence.tables[group].length == sequence.length;
  }

  // A piece of attention work: at most kRowTile adjacent rows of the pass.
  struct Work {
    int64_t first_row;
    int64_t rows;
    size_t runs_begin, runs_end;      // into the group's runs
    size_t hidden_begin, hidden_end;  // into the group's hidden positions
  };
  std::span<const Work> work(int layer) const { return groups_[group_of_layer(layer)].work; }
  // The piece that has a row of the pass.
  const Work& WorkOf(int layer, int64_t row) const;
  // Writes the runs of a layer and head to `out`, which has room for RunsMax of them; returns the
  // ones written.
  std::span<const cpu::KvRun> Runs(int layer, int head, const Work& work,
                                   std::span<cpu::KvRun> out) const;
  std::span<const cpu::HiddenPositions> Hidden(int layer, const Work& work) const;
  // The end of the last position among the runs of a piece of work.
  int64_t EndOf(int layer, const Work& work) const;

  // Runs as blocks, for readers other than the CPU's kernels: `count` positions from first_position
  // on, in blocks of consecutive numbers, in the order of positions.
  struct BlockRun {
    BlockId block;
    int64_t first_position;
    int64_t count;
    uint64_t rows;  // a bit for each row of the work that may see it
    size_t owner;   // the first part that holds it
  };
  std::span<const BlockRun> BlockRuns(int layer, const Work& work) const;

  // The most runs of one piece of work, for a context and a number of parts.
  static int64_t RunsMax(int64_t context, int64_t parts);

 private:
  struct GroupView {
    std::vector<BlockRun> runs;
    std::vector<cpu::HiddenPositions> hidden;
    std::vector<Work> work;
  };

  // The pass sees a part's positions below this one.
  int64_t Reach(GroupId group, const PartRows& part) const;
  void CutTiles();
  size_t ClusterEnd(GroupId group, size_t first) const;
  void AddCluster(GroupId group, size_t first, size_t end);
  void AddRuns(GroupId group, size_t first, size_t end);
  void AddBlocks(GroupId group, size_t first, size_t end, int64_t number);
  void JoinRuns(std::vector<BlockRun>& runs, size_t added);

  const Cache* cache_;
  std::vector<PartRows> parts_;
  std::vector<RowTile> tiles_;
  IdVector<GroupId, GroupView> groups_;
  // While a cluster's tables are walked, by part: its next entry, what Reach returned, and the last
  // run that it owns.
  std::vector<size_t> cursors_;
  std::vector<int64_t> reaches_;
  std::vector<size_t> last_runs_;
};

}  // namespace kvant::kv
