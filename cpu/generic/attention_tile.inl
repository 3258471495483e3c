// How attention cuts its work: tiles of query vectors and units of them, spans of positions and
// the segments of the cache's runs in them, with the working memory of a tile.
//
// Included inside an instruction set's namespace and target region, after its simd.inl, math.inl
// and quantize_vector.inl, and before the other parts of attention.

// Rows per tile at most.
inline constexpr int kTileRows = kMaskedRowsMax;

// How many query vectors go together, unless one row alone has more heads than that.
struct TileCut {
  int tile_queries = 64;
  // Query vectors of a tile that go through a span together: their scores stay in the first-level
  // cache, the span's keys and values in the second.
  int unit_queries = 8;
  int unit_multiple = 1;  // arrays of a unit have room for a multiple of so many query vectors
};
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
inline constexpr int64_t kScoreStride = kAttentionSpan + kKeyTileTokens;
inline constexpr int kSpanSegmentsMax = kAttentionSpan / kKeyTileTokens;
// FourCodes between the weight codes of two query vectors.
inline constexpr int64_t kWeightCodeStride = kAttentionSpan / kValueTileTokens + 8;

// How far ahead of its use the cache is asked for, and by what: the bytes that a loop is about to
// read from `source` on.
inline constexpr int64_t kPrefetchBytes = 8192;
template <int64_t kBytes>
[[gnu::always_inline]] inline void PrefetchAhead(const void* source) {
  const char* ahead = static_cast<const char*>(source) + kPrefetchBytes;
  for (int64_t i = 0; i < kBytes; i += 64) __builtin_prefetch(ahead + i, 0, 2);
}

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

// The scales of q8 keys and values, one for each token of a run.
inline const float* KeyScalesOf(const KvRun& run) {
  return static_cast<const float*>(run.key_scales);
}
inline const float* ValueScalesOf(const KvRun& run) {
  return static_cast<const float*>(run.value_scales);
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

// The part of a run that lies in a span and that some row of the tile may see.
struct Segment {
  PositionRange positions;
  const KvRun* run;
  uint64_t rows;  // bit r: row r of the tile may see it
};

// Vectors that the exponential takes at a time, and their positions.
inline constexpr int kStepVectors = 4;
inline constexpr int64_t kStepTokens = kStepVectors * kLanes;
static_assert(kAttentionSpan % kStepTokens == 0 && kStepTokens % kSumLanes == 0);

// The positions of a span that a row may see, hidden positions aside, as offsets in the span:
// ranges in whole steps.
struct SeenOffsets {
  PositionRange steps = {0, 0};
  PositionRange ranges[kSpanSegmentsMax];
  int count = 0;

  bool whole() const {
    return count == 1 && ranges[0].begin == steps.begin && ranges[0].end == steps.end;
  }
};

// Some rows with all their heads, and their working memory. Query vector j is head j % heads of
// row j / heads. Arrays of a unit hold what the unit that is at work needs in a span.
struct QueryTile {
  const AttentionTask* task;
  TileCut cut;
  int64_t first_row;
  int rows;
  int queries;                    // rows * heads_per_kv
  PositionRange seen[kTileRows];  // by row
  PositionRange seen_by_any;

  // Queries as ScoreUnit reads them, block by block: [k_dim][queries of the block] floats, or
  // [k_dim / 4 rounded up][queries of the block] words of four codes for q8 keys.
  float* packed;         // blocks across the rows of a unit
  float* packed_by_row;  // blocks inside a row, for segments that only some rows may see
  // [queries]: the factor that makes a score of a product with a key tile.
  float* query_factor;
  int32_t* query_sum;  // [queries]: sum of a query's codes
  // Factor, sum and codes of the part of a query that meets q8 values. Codes:
  // [queries][latent_stride] words of four, each four times, as LoadValuesAsKeys has tokens side by
  // side.
  float* latent_factor;
  int32_t* latent_sum;
  int32_t* latent_codes;
  int64_t latent_stride;
  float* sums;   // [queries][value_stride]: weighted values of all spans so far
  float* max;    // [queries]
  float* total;  // [queries]: sum of exponentials
  int64_t value_stride;

  int64_t span_begin;  // position
  Segment* segments;   // [rows * kSpanSegmentsMax]
  int segment_count;
  bool segments_for_all;  // every row of the tile may see every segment

  // The scales by which the weights of the row at work, times the scales of q8 values, become codes
  // (ChooseCodeScales), by offset in the span.
  float* code_scales;  // [kAttentionSpan]
  float* code_taints;  // [kAttentionSpan]: NaN for scales that are not finite, if code_tainted
  bool code_tainted;
  float code_step;
  PositionRange coded;  // offsets for which the above holds for all rows that see just these

  int unit_row;  // the unit's first row in the tile
  int unit_rows;
  int unit_first;  // its first query vector
  int unit_count;
  float* scores;            // [unit_count][kScoreStride], then the exponentials
  FourCodes* weight_codes;  // [unit_count][kWeightCodeStride] for q8 values, zero where not seen
  float* weight_step;       // [unit_count]: scale of the weight codes
  float* span_sums;         // [unit_count][value_stride]: the span's weighted values
  float* span_max;          // [unit_count]; -infinity where the span has nothing to see
  float* span_total;        // [unit_count]: sum of exponentials

  static uint64_t Bits(int count) {
    return count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  }
  // The bits of this tile's rows in a mask of the task's.
  uint64_t RowsOf(uint64_t task_rows) const {
    const int64_t bit = first_row + task->mask_row;
    const uint64_t mine = std::rotr(task_rows, static_cast<int>(bit % kMaskedRowsMax));
    return mine & Bits(rows);
  }
  // The unit's rows that may see a segment: bit 0 is its first row.
  uint64_t UnitRowsOf(const Segment& segment) const {
    return segment.rows >> unit_row & Bits(unit_rows);
  }
  PositionRange SeenBy(int query) const { return seen[query / task->heads_per_kv]; }
  float* ScoresOf(int query) const { return scores + (query - unit_first) * kScoreStride; }
  float* SpanSumsOf(int query) const { return span_sums + (query - unit_first) * value_stride; }
  FourCodes* WeightCodesOf(int query) const {
    return weight_codes + (query - unit_first) * kWeightCodeStride;
  }
};

// The positions that all query vectors [first, first + count) see, and those that at least one
// sees.
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

// Calls visit(range) for the hidden positions of a row in `offsets` of the span.
template <class Visit>
inline void ForEachHidden(const QueryTile& tile, int row, PositionRange offsets,
                          const Visit& visit) {
  for (const HiddenPositions& hidden : tile.task->hidden) {
    if ((tile.RowsOf(hidden.rows) >> row & 1) == 0) continue;
    const PositionRange range =
        Intersect(offsets, {hidden.begin - tile.span_begin, hidden.end - tile.span_begin});
    if (!range.empty()) visit(range);
  }
}

// Rows of at most `queries` query vectors, but at least one.
inline int RowsOfQueries(int queries, int64_t rows, int heads_per_kv) {
  return static_cast<int>(Least(rows, Greatest(1, queries / heads_per_kv)));
}

inline int TileRowsOf(const TileCut& cut, int64_t rows, int heads_per_kv) {
  return static_cast<int>(Least(kTileRows, RowsOfQueries(cut.tile_queries, rows, heads_per_kv)));
}

inline int64_t ValueStride(int v_dim) { return (v_dim + 15) / 16 * 16; }

// Lays the arrays of a tile, whose cut is known, out in memory from `base` on, if that is not null,
// and returns their size.
size_t PlaceTile(std::byte* base, int64_t rows, int heads_per_kv, int k_dim, int v_dim,
                 KeyForm key_form, QueryTile& tile) {
  const int64_t tile_rows = TileRowsOf(tile.cut, rows, heads_per_kv);
  const int64_t queries = tile_rows * heads_per_kv;
  const int unit_rows = RowsOfQueries(tile.cut.unit_queries, tile_rows, heads_per_kv);
  const int64_t multiple = tile.cut.unit_multiple;
  const int64_t unit = (unit_rows * heads_per_kv + multiple - 1) / multiple * multiple;
  size_t size = 0;
  const auto place = [&](auto*& array, int64_t count) {
    if (base != nullptr) {
      array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(base + size);
    }
    size += RoundUp(static_cast<size_t>(count) * sizeof(*array), 64);
  };
  tile.value_stride = ValueStride(v_dim);
  place(tile.scores, unit * kScoreStride);
  place(tile.weight_codes, unit * kWeightCodeStride);
  place(tile.span_sums, unit * tile.value_stride);
  for (float** array : {&tile.weight_step, &tile.span_max, &tile.span_total}) place(*array, unit);
  place(tile.sums, queries * tile.value_stride);
  place(tile.packed, queries * k_dim);
  place(tile.packed_by_row, queries * k_dim);
  place(tile.query_sum, queries);
  for (float** array : {&tile.query_factor, &tile.max, &tile.total}) place(*array, queries);
  const int64_t latent_queries = key_form == KeyForm::kValueFirst ? queries : 0;
  tile.latent_stride = ValueStride(v_dim);
  place(tile.latent_codes, latent_queries * tile.latent_stride);
  place(tile.latent_sum, latent_queries);
  place(tile.latent_factor, latent_queries);
  place(tile.segments, tile_rows * kSpanSegmentsMax);
  for (float** array : {&tile.code_scales, &tile.code_taints}) place(*array, kAttentionSpan);
  return size;
}

// The widest block of at most `left` query vectors: a power of two.
inline int NextBlock(int left) {
  int queries = kBlockQueries;
  while (queries > left) queries /= 2;
  return queries;
}

// visit(first, count) for blocks of `queries` query vectors from number `begin` on.
template <class Visit>
inline void ForEachBlock(int begin, int queries, const Visit& visit) {
  for (int done = 0; done < queries;) {
    const int count = NextBlock(queries - done);
    visit(begin + done, count);
    done += count;
  }
}

// Calls visit() with each unit of the tile at work.
template <class Visit>
inline void ForEachUnit(QueryTile& tile, const Visit& visit) {
  const int heads = tile.task->heads_per_kv;
  const int rows = RowsOfQueries(tile.cut.unit_queries, tile.rows, heads);
  for (tile.unit_row = 0; tile.unit_row < tile.rows; tile.unit_row += rows) {
    tile.unit_rows = tile.rows - tile.unit_row < rows ? tile.rows - tile.unit_row : rows;
    tile.unit_first = tile.unit_row * heads;
    tile.unit_count = tile.unit_rows * heads;
    visit();
  }
}

// Calls visit(first, count, packed queries) for the blocks of the unit that a segment concerns: all
// blocks, or the blocks inside the rows that may see the segment.
template <class Visit>
inline void ForEachBlockOf(const QueryTile& tile, const Segment& segment, const Visit& visit) {
  const int heads = tile.task->heads_per_kv;
  const uint64_t rows = tile.UnitRowsOf(segment);
  if (rows == QueryTile::Bits(tile.unit_rows)) {
    ForEachBlock(tile.unit_first, tile.unit_count, [&](int first, int count) {
      visit(first, count, tile.packed + int64_t{first} * tile.task->k_dim);
    });
    return;
  }
  for (uint64_t left = rows; left != 0; left &= left - 1) {
    const int first_query = tile.unit_first + std::countr_zero(left) * heads;
    ForEachBlock(first_query, heads, [&](int first, int count) {
      visit(first, count, tile.packed_by_row + int64_t{first} * tile.task->k_dim);
    });
  }
}

// A query vector as the caller gave it.
inline const float* QueryOf(const QueryTile& tile, int query) {
  const AttentionTask& task = *tile.task;
  const int heads = task.heads_per_kv;
  return task.queries + (tile.first_row + query / heads) * task.query_row_stride +
         int64_t{query % heads} * task.query_dim();
}
