// How attention cuts its work: tiles of query vectors, chunks of positions and the segments of the
// cache's runs in them, with the working memory of a tile.
//
// Included inside an instruction set's namespace and target region, after its simd.h and math.inl
// and before attention.inl.

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
