// Attention of any number of query rows over the cached keys and values of one kv head.
//
// Included inside an instruction set's namespace and target region, after its simd.h and math.inl.
//
// Query vectors (a row's head) are taken in tiles of some rows with all their heads, and every key
// and value is read once per tile. A tile walks the positions in chunks of kAttentionChunk: scores
// of the chunk, their maximum, exponentials, weighted values; then the chunk's partial result
// merges into the tile's. Inside a tile, blocks of query vectors share registers.
//
// Invariants that fix the bits: a score is one chain of fused multiply-adds over k_dim; a chunk's
// exponentials are summed in lanes by position % 16; values are accumulated position by position;
// chunks merge in order. So neither the tiling of rows, nor the runs, nor the positions that other
// rows of a tile see can change a result. A position that a row does not see is never multiplied
// into that row, whatever its bytes are.

// Query vectors per tile, unless one row alone has more heads than that.
inline constexpr int kTileQueries = 32;
// Query vectors that share registers, and vectors of sums kept in registers at most.
inline constexpr int kBlockQueries = kLanes == 16 ? 8 : 4;
inline constexpr int kBlockSums = kRegisters / 2;
// Key tiles or vectors of values that one block works on at a time.
inline constexpr int kBlockWidth = 4;
// Values are accumulated over this many positions before the next vectors of v_dim get their turn,
// so that all of a position's values are read while they are near.
inline constexpr int64_t kValueStretch = 64;
inline constexpr int kKeyTileVectors = kKeyTileTokens / kLanes;
// Floats between the scores of two query vectors: not a power of two, for the cache's sake.
inline constexpr int64_t kScoreStride = kAttentionChunk + kKeyTileTokens;
inline constexpr int kChunkSegmentsMax = kAttentionChunk / kKeyTileTokens;

constexpr int BlockWidth(int queries, int vectors_each) {
  const int width = kBlockSums / (queries * vectors_each);
  return width > kBlockWidth ? kBlockWidth : width;
}

inline F32 LoadElements(const float* source) { return Load(source); }
inline F32 LoadElements(const uint16_t* source) { return LoadF16(source); }
inline F32 LoadElementsPartial(const float* source, int64_t count) {
  return LoadPartial(source, count);
}
inline F32 LoadElementsPartial(const uint16_t* source, int64_t count) {
  return LoadF16Partial(source, count);
}

// Positions [begin, end); empty where end <= begin.
struct PositionRange {
  int64_t begin;
  int64_t end;
  bool empty() const { return end <= begin; }
};

inline PositionRange Intersect(PositionRange a, PositionRange b) {
  return {Greatest(a.begin, b.begin), Least(a.end, b.end)};
}

inline int64_t TileFloor(int64_t position) { return position / kKeyTileTokens * kKeyTileTokens; }

// The part of a run that lies in a chunk and that some row of the tile may see.
struct Segment {
  PositionRange positions;
  const KvRun* run;
};

// Some rows with all their heads, and their working memory. Query vector j is head j % heads of
// row j / heads.
struct QueryTile {
  const AttentionTask* task;
  int64_t first_row;
  int rows;
  int queries;                       // rows * heads_per_kv
  PositionRange seen[kTileQueries];  // by row
  PositionRange seen_by_any;

  float* packed;       // queries, block by block: [k_dim][queries of the block]
  float* scores;       // [queries][kScoreStride], then the exponentials
  float* chunk_sums;   // [queries][value_stride]: this chunk's weighted values
  float* sums;         // [queries][value_stride]: all chunks so far
  float* chunk_max;    // [queries]; -infinity where the chunk has nothing to see
  float* chunk_total;  // [queries]: sum of exponentials
  float* max;          // [queries]
  float* total;        // [queries]
  int64_t value_stride;

  int64_t chunk_begin;  // position
  Segment segments[kChunkSegmentsMax];
  int segment_count;

  PositionRange SeenBy(int query) const { return seen[query / task->heads_per_kv]; }
  float* ScoresOf(int query) const { return scores + query * kScoreStride; }
};

inline int TileRows(int64_t rows, int heads_per_kv) {
  const int64_t fitting = Greatest(1, kTileQueries / heads_per_kv);
  return static_cast<int>(Least(rows, fitting));
}

inline int64_t ValueStride(int v_dim) { return (v_dim + 15) / 16 * 16; }

size_t AttentionScratchBytes(int64_t rows, int heads_per_kv, int k_dim, int v_dim) {
  const int64_t queries = TileRows(rows, heads_per_kv) * int64_t{heads_per_kv};
  const int64_t floats = queries * (k_dim + kScoreStride + 2 * ValueStride(v_dim) + 4);
  return static_cast<size_t>(floats) * sizeof(float);
}

// The widest block of at most `left` query vectors: a power of two.
inline int NextBlock(int left) {
  int queries = kBlockQueries;
  while (queries > left) queries /= 2;
  return queries;
}

// ---- Scores -------------------------------------------------------------------------------------

// scores[q][token] = scale * (query q . key of token) for kTiles adjacent key tiles.
template <int kQueries, int kTiles, class Element>
inline void ScoreKeyTiles(const float* queries, int k_dim, const Element* keys, float scale,
                          float* scores) {
  constexpr int kVectors = kTiles * kKeyTileVectors;
  const int64_t tile_elements = int64_t{k_dim} * kKeyTileTokens;
  F32 sums[kQueries][kVectors];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[q][v] = Zero();
  }
  for (int d = 0; d < k_dim; ++d) {
    F32 key[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int tile = v / kKeyTileVectors;
      const int part = v % kKeyTileVectors;
      key[v] = LoadElements(keys + tile * tile_elements + d * kKeyTileTokens + part * kLanes);
    }
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const F32 query = Broadcast(queries[d * kQueries + q]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[q][v] = MulAdd(query, key[v], sums[q][v]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Store(scores + q * kScoreStride + v * kLanes, Mul(Broadcast(scale), sums[q][v]));
    }
  }
}

// Scores of one block of query vectors over whole tiles; `positions` begins at a tile.
template <int kQueries, class Element>
void ScoreBlock(const QueryTile& tile, const float* queries, const Segment& segment,
                PositionRange positions, float* scores) {
  constexpr int kTiles = BlockWidth(kQueries, kKeyTileVectors);
  const int k_dim = tile.task->k_dim;
  const float scale = tile.task->scale;
  const Element* run_keys = reinterpret_cast<const Element*>(segment.run->keys);
  int64_t p = positions.begin;
  while (p < positions.end) {
    const Element* keys = run_keys + (p - segment.run->first_position) * k_dim;
    float* out = scores + (p - tile.chunk_begin);
    if (p + (kTiles - 1) * kKeyTileTokens < positions.end) {
      ScoreKeyTiles<kQueries, kTiles>(queries, k_dim, keys, scale, out);
      p += kTiles * kKeyTileTokens;
    } else {
      ScoreKeyTiles<kQueries, 1>(queries, k_dim, keys, scale, out);
      p += kKeyTileTokens;
    }
  }
}

template <class Element>
void ScoreBlockOf(int queries, const QueryTile& tile, const float* packed, const Segment& segment,
                  PositionRange positions, float* scores) {
  switch (queries) {
    case 1: return ScoreBlock<1, Element>(tile, packed, segment, positions, scores);
    case 2: return ScoreBlock<2, Element>(tile, packed, segment, positions, scores);
    case 4: return ScoreBlock<4, Element>(tile, packed, segment, positions, scores);
    default: return ScoreBlock<kBlockQueries, Element>(tile, packed, segment, positions, scores);
  }
}

// What all query vectors [first, first + count) see, or what at least one of them sees.
inline PositionRange SeenByAll(const QueryTile& tile, int first, int count) {
  PositionRange all = tile.SeenBy(first);
  for (int q = first + 1; q < first + count; ++q) all = Intersect(all, tile.SeenBy(q));
  return all;
}
inline PositionRange SeenByAny(const QueryTile& tile, int first, int count) {
  PositionRange any = tile.SeenBy(first);
  for (int q = first + 1; q < first + count; ++q) {
    any.begin = Least(any.begin, tile.SeenBy(q).begin);
    any.end = Greatest(any.end, tile.SeenBy(q).end);
  }
  return any;
}

void ScoreChunk(const QueryTile& tile) {
  for (int first = 0; first < tile.queries;) {
    const int count = NextBlock(tile.queries - first);
    const float* packed = tile.packed + int64_t{first} * tile.task->k_dim;
    const PositionRange any = SeenByAny(tile, first, count);
    for (int s = 0; s < tile.segment_count; ++s) {
      const Segment& segment = tile.segments[s];
      PositionRange positions = Intersect(segment.positions, any);
      if (positions.empty()) continue;
      positions.begin = TileFloor(positions.begin);
      if (tile.task->k_element == KvElement::kF16) {
        ScoreBlockOf<uint16_t>(count, tile, packed, segment, positions, tile.ScoresOf(first));
      } else {
        ScoreBlockOf<float>(count, tile, packed, segment, positions, tile.ScoresOf(first));
      }
    }
    first += count;
  }
}

// ---- Softmax ------------------------------------------------------------------------------------

// Writes -infinity over the scores of whole tiles that `seen` does not cover, and returns these
// whole tiles, as offsets in the chunk.
inline PositionRange MaskEdges(float* scores, PositionRange seen, int64_t chunk_begin) {
  const int64_t begin = seen.begin - chunk_begin;
  const int64_t end = seen.end - chunk_begin;
  const int64_t tiles_begin = TileFloor(begin);
  const int64_t tiles_end = TileFloor(end + kKeyTileTokens - 1);
  for (int64_t i = tiles_begin; i < begin; ++i) scores[i] = -INFINITY;
  for (int64_t i = end; i < tiles_end; ++i) scores[i] = -INFINITY;
  return {tiles_begin, tiles_end};
}

inline float MaxScore(const float* scores, PositionRange offsets, float max) {
  F32 lanes = Broadcast(max);
  for (int64_t i = offsets.begin; i < offsets.end; i += kLanes)
    lanes = Max(lanes, Load(scores + i));
  float values[kLanes];
  Store(values, lanes);
  for (const float value : values) max = max > value ? max : value;
  return max;
}

// scores = e^(scores - max); adds them to the sums by lane.
inline void Exponentials(float* scores, PositionRange offsets, float max,
                         F32 (&sums)[kSumVectors]) {
  for (int64_t i = offsets.begin; i < offsets.end; i += kSumLanes) {
    for (int v = 0; v < kSumVectors; ++v) {
      float* place = scores + i + v * kLanes;
      const F32 weights = Exp(Sub(Load(place), Broadcast(max)));
      Store(place, weights);
      sums[v] = Add(sums[v], weights);
    }
  }
}

// Turns the scores of one query vector into weights relative to the chunk's maximum.
void SoftmaxQuery(const QueryTile& tile, int query) {
  float* scores = tile.ScoresOf(query);
  PositionRange offsets[kChunkSegmentsMax];
  int count = 0;
  float max = -INFINITY;
  for (int s = 0; s < tile.segment_count; ++s) {
    const PositionRange seen = Intersect(tile.segments[s].positions, tile.SeenBy(query));
    if (seen.empty()) continue;
    offsets[count] = MaskEdges(scores, seen, tile.chunk_begin);
    max = MaxScore(scores, offsets[count], max);
    ++count;
  }
  F32 sums[kSumVectors];
  for (F32& sum : sums) sum = Zero();
  for (int s = 0; s < count; ++s) Exponentials(scores, offsets[s], max, sums);
  tile.chunk_max[query] = max;
  tile.chunk_total[query] = SumLanes(sums);
}

// ---- Weighted values ----------------------------------------------------------------------------

// sums[q] += weights[q][position] * value of position, over `positions` values of adjacent
// positions and kVectors vectors of v_dim; the only vector holds `rest` values where kPartial.
template <int kQueries, int kVectors, bool kPartial, class Element>
inline void AddValueVectors(const float* weights, const Element* values, int64_t v_dim,
                            int64_t positions, int64_t rest, float* sums, int64_t sum_stride) {
  F32 total[kQueries][kVectors];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) total[q][v] = Load(sums + q * sum_stride + v * kLanes);
  }
  for (int64_t p = 0; p < positions; ++p) {
    const Element* row = values + p * v_dim;
    F32 value[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      value[v] = kPartial ? LoadElementsPartial(row, rest) : LoadElements(row + v * kLanes);
    }
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const F32 weight = Broadcast(weights[q * kScoreStride + p]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) total[q][v] = MulAdd(weight, value[v], total[q][v]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(sums + q * sum_stride + v * kLanes, total[q][v]);
  }
}

// The same for all of v_dim.
template <int kQueries, class Element>
void AddValues(const QueryTile& tile, int query, const Segment& segment, PositionRange positions) {
  constexpr int kVectors = BlockWidth(kQueries, 1);
  const int64_t v_dim = tile.task->v_dim;
  const Element* run_values = reinterpret_cast<const Element*>(segment.run->values);
  for (int64_t p = positions.begin; p < positions.end; p += kValueStretch) {
    const int64_t count = Least(kValueStretch, positions.end - p);
    const Element* values = run_values + (p - segment.run->first_position) * v_dim;
    const float* weights = tile.ScoresOf(query) + (p - tile.chunk_begin);
    float* sums = tile.chunk_sums + query * tile.value_stride;
    int64_t d = 0;
    for (; d + kVectors * kLanes <= v_dim; d += kVectors * kLanes) {
      AddValueVectors<kQueries, kVectors, false>(weights, values + d, v_dim, count, 0, sums + d,
                                                 tile.value_stride);
    }
    for (; d + kLanes <= v_dim; d += kLanes) {
      AddValueVectors<kQueries, 1, false>(weights, values + d, v_dim, count, 0, sums + d,
                                          tile.value_stride);
    }
    if (d < v_dim) {
      AddValueVectors<kQueries, 1, true>(weights, values + d, v_dim, count, v_dim - d, sums + d,
                                         tile.value_stride);
    }
  }
}

template <class Element>
void AddValuesOf(int queries, const QueryTile& tile, int query, const Segment& segment,
                 PositionRange positions) {
  if (positions.empty()) return;
  switch (queries) {
    case 1: return AddValues<1, Element>(tile, query, segment, positions);
    case 2: return AddValues<2, Element>(tile, query, segment, positions);
    case 4: return AddValues<4, Element>(tile, query, segment, positions);
    default: return AddValues<kBlockQueries, Element>(tile, query, segment, positions);
  }
}

// A block's positions in order: those before what all its query vectors see, vector by vector; the
// common ones together; those after them.
template <class Element>
void AddSegmentValues(const QueryTile& tile, int first, int count, const Segment& segment) {
  const PositionRange common = Intersect(segment.positions, SeenByAll(tile, first, count));
  for (int q = first; q < first + count; ++q) {
    const PositionRange seen = Intersect(segment.positions, tile.SeenBy(q));
    AddValuesOf<Element>(1, tile, q, segment, {seen.begin, Least(seen.end, common.begin)});
  }
  AddValuesOf<Element>(count, tile, first, segment, common);
  const int64_t after = Greatest(common.begin, common.end);
  for (int q = first; q < first + count; ++q) {
    const PositionRange seen = Intersect(segment.positions, tile.SeenBy(q));
    AddValuesOf<Element>(1, tile, q, segment, {Greatest(seen.begin, after), seen.end});
  }
}

void WeighChunk(const QueryTile& tile) {
  for (int64_t i = 0; i < tile.queries * tile.value_stride; i += kLanes) {
    Store(tile.chunk_sums + i, Zero());
  }
  for (int first = 0; first < tile.queries;) {
    const int count = NextBlock(tile.queries - first);
    for (int s = 0; s < tile.segment_count; ++s) {
      if (tile.task->v_element == KvElement::kF16) {
        AddSegmentValues<uint16_t>(tile, first, count, tile.segments[s]);
      } else {
        AddSegmentValues<float>(tile, first, count, tile.segments[s]);
      }
    }
    first += count;
  }
}

// ---- Chunks -------------------------------------------------------------------------------------

// Merges one query vector's chunk into its result so far.
void MergeChunk(const QueryTile& tile, int query) {
  const float max = tile.max[query];
  const float chunk_max = tile.chunk_max[query];
  if (tile.chunk_total[query] == 0.0f) return;  // the chunk has nothing that this row sees
  const float merged_max = max > chunk_max ? max : chunk_max;
  const F32 old_factor = Exp(Broadcast(max - merged_max));
  const F32 chunk_factor = Exp(Broadcast(chunk_max - merged_max));

  const F32 chunk_total = Mul(Broadcast(tile.chunk_total[query]), chunk_factor);
  tile.total[query] = FirstLane(MulAdd(Broadcast(tile.total[query]), old_factor, chunk_total));
  tile.max[query] = merged_max;
  float* sums = tile.sums + query * tile.value_stride;
  const float* chunk_sums = tile.chunk_sums + query * tile.value_stride;
  for (int64_t i = 0; i < tile.value_stride; i += kLanes) {
    const F32 weighted = Mul(Load(chunk_sums + i), chunk_factor);
    Store(sums + i, MulAdd(Load(sums + i), old_factor, weighted));
  }
}

void WriteResult(const QueryTile& tile, int query) {
  const AttentionTask& task = *tile.task;
  const int heads = task.heads_per_kv;
  float* out = task.out + (tile.first_row + query / heads) * task.out_row_stride +
               int64_t{query % heads} * task.v_dim;
  const float* sums = tile.sums + query * tile.value_stride;
  // A row that sees nothing gets zeros.
  const F32 total = Broadcast(tile.total[query] == 0.0f ? 1.0f : tile.total[query]);
  int64_t d = 0;
  for (; d + kLanes <= task.v_dim; d += kLanes) Store(out + d, Div(Load(sums + d), total));
  const int64_t rest = task.v_dim - d;
  if (rest > 0) StorePartial(out + d, Div(Load(sums + d), total), rest);
}

// Lays the query vectors of a tile out as the blocks of ScoreChunk read them.
void PackQueries(const QueryTile& tile) {
  const AttentionTask& task = *tile.task;
  const int heads = task.heads_per_kv;
  for (int first = 0; first < tile.queries;) {
    const int count = NextBlock(tile.queries - first);
    float* packed = tile.packed + int64_t{first} * task.k_dim;
    for (int q = 0; q < count; ++q) {
      const int query = first + q;
      const float* source = task.queries +
                            (tile.first_row + query / heads) * task.query_row_stride +
                            int64_t{query % heads} * task.k_dim;
      for (int d = 0; d < task.k_dim; ++d) packed[d * count + q] = source[d];
    }
    first += count;
  }
}

void BeginTile(QueryTile& tile, int64_t first_row, int rows) {
  const AttentionTask& task = *tile.task;
  tile.first_row = first_row;
  tile.rows = rows;
  tile.queries = rows * task.heads_per_kv;
  for (int r = 0; r < rows; ++r) {
    const int64_t position = task.positions[first_row + r];
    const int64_t oldest = task.window > 0 ? Greatest(0, position - task.window + 1) : 0;
    tile.seen[r] = {oldest, position + 1};
  }
  tile.seen_by_any = SeenByAny(tile, 0, tile.queries);
  for (int q = 0; q < tile.queries; ++q) {
    tile.max[q] = -INFINITY;
    tile.total[q] = 0.0f;
  }
  for (int64_t i = 0; i < tile.queries * tile.value_stride; i += kLanes) {
    Store(tile.sums + i, Zero());
  }
  PackQueries(tile);
}

// Collects the parts of runs, from run `*next` on, that lie in [chunk_begin, chunk_end), and moves
// `*next` to the first run that may reach into the next chunk.
void FindSegments(QueryTile& tile, int64_t* next) {
  const AttentionTask& task = *tile.task;
  const PositionRange chunk = {tile.chunk_begin, tile.chunk_begin + kAttentionChunk};
  const PositionRange wanted = Intersect(chunk, tile.seen_by_any);
  const int64_t run_count = static_cast<int64_t>(task.runs.size());
  tile.segment_count = 0;
  for (; *next < run_count; ++*next) {
    const KvRun& run = task.runs[static_cast<size_t>(*next)];
    if (run.first_position >= chunk.end) return;
    const int64_t run_end = run.first_position + run.count;
    const PositionRange positions = Intersect(wanted, {run.first_position, run_end});
    if (!positions.empty()) tile.segments[tile.segment_count++] = {positions, &run};
    if (run_end > chunk.end) return;
  }
}

void AttendTile(QueryTile& tile) {
  int64_t next_run = 0;
  const int64_t first = tile.seen_by_any.begin / kAttentionChunk * kAttentionChunk;
  for (int64_t begin = first; begin < tile.seen_by_any.end; begin += kAttentionChunk) {
    tile.chunk_begin = begin;
    FindSegments(tile, &next_run);
    if (tile.segment_count == 0) continue;
    ScoreChunk(tile);
    for (int q = 0; q < tile.queries; ++q) SoftmaxQuery(tile, q);
    WeighChunk(tile);
    for (int q = 0; q < tile.queries; ++q) MergeChunk(tile, q);
  }
  for (int q = 0; q < tile.queries; ++q) WriteResult(tile, q);
}

void Attention(const AttentionTask& task) {
  const int tile_rows = TileRows(task.rows, task.heads_per_kv);
  const int64_t queries = int64_t{tile_rows} * task.heads_per_kv;
  QueryTile tile;
  tile.task = &task;
  tile.value_stride = ValueStride(task.v_dim);
  tile.scores = reinterpret_cast<float*>(task.scratch.data());
  tile.chunk_sums = tile.scores + queries * kScoreStride;
  tile.sums = tile.chunk_sums + queries * tile.value_stride;
  tile.packed = tile.sums + queries * tile.value_stride;
  tile.chunk_max = tile.packed + queries * task.k_dim;
  tile.chunk_total = tile.chunk_max + queries;
  tile.max = tile.chunk_total + queries;
  tile.total = tile.max + queries;
  for (int64_t row = 0; row < task.rows; row += tile_rows) {
    BeginTile(tile, row, static_cast<int>(Least(tile_rows, task.rows - row)));
    AttendTile(tile);
  }
}
