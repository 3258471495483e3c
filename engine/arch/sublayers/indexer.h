// The indexer of an attention, which chooses what each row sees (DeepSeek-V3.2, MiniMax M3):
//   q = its queries [heads][dim], k = norm(its key) [dim], whose first values are rotated
//   score of a position = sum over heads of weight * max(0, q . k), times 1 / sqrt(heads * dim), or
//   score of a block of positions, for each head = the largest q . k
// A row sees the top_k positions with the best scores among those up to its own; or top_k blocks
// for the kv heads of each head, of which the last ones are chosen whatever they score.
//
// Keys are in a cache layer of their own. An attention may see what the indexer of an earlier layer
// has chosen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cpu/kernels/rope.h"
#include "engine/arch/metadata.h"
#include "engine/graph/attention/index_nodes.h"
#include "engine/graph/rowwise/rope.h"

namespace kvant::arch {

class SublayerBuilder;

struct Indexer {
  graph::IndexShape shape;
  size_t rope = 0;      // index into ModelSpec::ropes
  float epsilon = 0;    // of the norms
  bool reuses = false;  // the choice of the last indexer before it

  // Adds the norms, the store and the choice. Tensors: indexer.k_norm, a layer norm; where every
  // head chooses, RMS norms indexer.q_norm and indexer.k_norm.
  Result<graph::ChosenBy> AddNodes(const graph::IndexInput& in, SublayerBuilder& builder) const;
};

// The sizes, by head_count, key_length and top_k of "attention.indexer."; blocks by block_size and
// local_blocks, where every head chooses.
enum class IndexUnits : uint8_t { kPositions, kBlocks };
Result<Indexer> ReadIndexer(const Metadata& metadata, IndexUnits units);

// The rope of an indexer: that with number `of_attention`, in another style where that differs.
size_t RopeOfIndexer(cpu::RopeStyle style, size_t of_attention,
                     std::vector<graph::RopeSpec>& ropes);

// kCorrupt where more values are rotated than a vector of the indexer has.
Status CheckRotation(const Metadata& metadata, const Indexer& indexer,
                     const std::vector<graph::RopeSpec>& ropes);

// Which layers have an indexer of their own, by attention.indexer.types; nothing where the file
// does not say it. kCorrupt where the first layer has none.
Result<std::optional<std::vector<bool>>> ReadIndexerTypes(const Metadata& metadata, size_t layers);

}  // namespace kvant::arch
