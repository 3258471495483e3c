// The indexer of an attention, which chooses what each row sees (DeepSeek-V3.2, MiniMax M3,
// Qwen 3.8 Flash-Next):
//   q = its queries [heads][dim], k = norm(its key) [dim], whose first values are rotated
//   score of a position = sum over heads of weight * max(0, q . k), times 1 / sqrt(heads * dim), or
//   score of a block of positions, for each head = the largest q . k, or
//   score of a block with one key, the normed mean of its positions' keys = sum over heads of
//   max(0,
//     q . k), times 1 / sqrt(dim)
// A row sees the top_k positions with the best scores among those up to its own; or top_k blocks
// for the kv heads of each head, of which the last ones are chosen whatever they score; or the
// top_k blocks with one key, and the positions behind the last whole block.
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
  // head chooses, or blocks have one key, RMS norms indexer.q_norm and indexer.k_norm.
  Result<graph::ChosenBy> AddNodes(const graph::IndexInput& in, SublayerBuilder& builder) const;

 private:
  // Replaces the key of each row by the mean of those of the last shape.block rows.
  graph::IndexInput AddMeanKeys(const graph::IndexInput& in, SublayerBuilder& builder) const;
};

// The sizes, by head_count, key_length and top_k of "attention.indexer."; blocks by block_size and
// local_blocks, where every head chooses.
enum class IndexUnits : uint8_t { kPositions, kBlocks };
Result<Indexer> ReadIndexer(const Metadata& metadata, IndexUnits units);

// An indexer whose blocks of `block` positions have one key; the file's top_k counts positions.
// kCorrupt where that is no multiple of the block.
Result<Indexer> ReadPoolIndexer(const Metadata& metadata, int64_t block);

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
