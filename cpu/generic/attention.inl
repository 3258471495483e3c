// Attention of any number of query rows over the cached keys and values of one kv head.
//
// Included inside an instruction set's namespace and target region, after its simd.inl, math.inl,
// attention_tile.inl, attention_merge.inl, attention_q8.inl, attention_softmax.inl and
// attention_latent.inl.
//
// Query vectors (a row's head) are taken in tiles of some rows with all their heads. A tile walks
// the positions in spans of kAttentionSpan; in each its units take turns: scores of the span,
// their maximum, exponentials, weighted values; then the span's partial result merges into the
// unit's, or is left for a merge of several calls. Keys and values come from memory once per tile,
// for its later units from a cache. Inside a unit, blocks of query vectors share registers.
//
// Invariants that fix the bits: a score is one chain of fused multiply-adds over k_dim; a span's
// exponentials are summed in lanes by position % 16; values are accumulated position by position;
// spans merge in order. So neither the tiling of rows, nor the runs, nor the positions that other
// rows of a tile see can change a result. A position that a row does not see is never multiplied
// into that row, whatever its bytes are; a hidden one has the weight zero. Products with q8 codes
// are exact integers (attention_q8.inl).

// ---- Scores -------------------------------------------------------------------------------------

// scores[q][token] = scale * (query q . key of token) for kTiles adjacent key tiles.
//
// Here and in AddValueVectors the loops over constant counts are unrolled by order: GCC would
// otherwise do it too late to keep the sums out of memory.
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
    constexpr int64_t kElements = kTiles * kKeyTileTokens;
    PrefetchAhead<kElements * sizeof(Element)>(keys + d * kElements);
    F32 key[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int tile = v / kKeyTileVectors;
      const int part = v % kKeyTileVectors;
      key[v] = LoadElements(keys + tile * tile_elements + d * kKeyTileTokens + part * kLanes);
    }
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        AddScaledVector(queries + d * kQueries + q, key[v], sums[q][v]);
      }
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

// Scores of one block of query vectors over kTiles whole tiles from position p on.
template <int kQueries, int kTiles, class Element>
void ScoreTilesAt(const QueryTile& tile, int first, const float* packed, const Segment& segment,
                  int64_t p) {
  const int k_dim = tile.task->k_dim;
  const int64_t token = p - segment.run->first_position;
  float* scores = tile.ScoresOf(first) + (p - tile.span_begin);
  const Element* keys = reinterpret_cast<const Element*>(segment.run->keys) + token * k_dim;
  ScoreKeyTiles<kQueries, kTiles>(packed, k_dim, keys, tile.task->scale, scores);
}

// The same for all of `positions`, which begin at a tile.
template <int kQueries, class Element>
void ScoreBlock(const QueryTile& tile, int first, const float* packed, const Segment& segment,
                PositionRange positions) {
  constexpr int kTiles = BlockWidth(kQueries, kKeyTileVectors);
  int64_t p = positions.begin;
  for (; p + (kTiles - 1) * kKeyTileTokens < positions.end; p += kTiles * kKeyTileTokens) {
    ScoreTilesAt<kQueries, kTiles, Element>(tile, first, packed, segment, p);
  }
  for (; p < positions.end; p += kKeyTileTokens) {
    ScoreTilesAt<kQueries, 1, Element>(tile, first, packed, segment, p);
  }
}

template <class Element>
void ScoreBlockOf(const QueryTile& tile, int first, int count, const float* packed,
                  const Segment& segment, PositionRange positions) {
  switch (count) {
    case 1: return ScoreBlock<1, Element>(tile, first, packed, segment, positions);
    case 2: return ScoreBlock<2, Element>(tile, first, packed, segment, positions);
    case 4: return ScoreBlock<4, Element>(tile, first, packed, segment, positions);
    default: return ScoreBlock<kBlockQueries, Element>(tile, first, packed, segment, positions);
  }
}

void ScoreUnit(const QueryTile& tile) {
  for (int s = 0; s < tile.segment_count; ++s) {
    const Segment& segment = tile.segments[s];
    ForEachBlockOf(tile, segment, [&](int first, int count, const float* packed) {
      PositionRange positions = Intersect(segment.positions, SeenByAny(tile, first, count));
      if (positions.empty()) return;
      positions.begin = TileFloor(positions.begin);
      VisitKvFormat(tile.task->k_element, [&]<class Format>(Format) {
        if constexpr (Format::kHasScales) {
          ScoreQ8BlockOf(tile, first, count, packed, *segment.run, positions);
        } else {
          ScoreBlockOf<typename Format::Number>(tile, first, count, packed, segment, positions);
        }
      });
      if (tile.task->key_form == KeyForm::kValueFirst) {
        AddValueScoresOf(tile, first, count, segment);
      }
    });
  }
}

// ---- Weighted values ----------------------------------------------------------------------------

// sums[q] += weights[q][i] * values[i] over `tokens` adjacent tokens and kVectors
// vectors of v_dim from d on; the only vector holds `rest` values where kPartial.
template <int kQueries, int kVectors, bool kPartial, class Element>
inline void AddValueVectors(const float* weights, const Element* values, int64_t v_dim,
                            int64_t tokens, int64_t d, int64_t rest, float* sums,
                            int64_t sum_stride) {
  F32 total[kQueries][kVectors];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) total[q][v] = Load(sums + q * sum_stride + d + v * kLanes);
  }
  for (int64_t i = 0; i < tokens; ++i) {
    PrefetchAhead<kVectors * kLanes * sizeof(Element)>(values + i * v_dim + d);
    F32 value[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const Element* part = values + i * v_dim + d + v * kLanes;
      value[v] = kPartial ? LoadElementsPartial(part, rest) : LoadElements(part);
    }
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        AddScaledVector(weights + q * kScoreStride + i, value[v], total[q][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(sums + q * sum_stride + d + v * kLanes, total[q][v]);
  }
}

// The same for all of v_dim.
template <int kQueries, class Element>
void AddValues(const QueryTile& tile, int query, const Segment& segment, PositionRange positions) {
  constexpr int kVectors = BlockWidth(kQueries, 1);
  const int64_t v_dim = tile.task->v_dim;
  float* sums = tile.SpanSumsOf(query);
  for (int64_t p = positions.begin; p < positions.end; p += kValueStretch) {
    const int64_t count = Least(kValueStretch, positions.end - p);
    const Element* values = reinterpret_cast<const Element*>(segment.run->values) +
                            (p - segment.run->first_position) * v_dim;
    const float* weights = tile.ScoresOf(query) + (p - tile.span_begin);
    int64_t d = 0;
    for (; d + kVectors * kLanes <= v_dim; d += kVectors * kLanes) {
      AddValueVectors<kQueries, kVectors, false>(weights, values, v_dim, count, d, 0, sums,
                                                 tile.value_stride);
    }
    for (; d + kLanes <= v_dim; d += kLanes) {
      AddValueVectors<kQueries, 1, false>(weights, values, v_dim, count, d, 0, sums,
                                          tile.value_stride);
    }
    if (d < v_dim) {
      AddValueVectors<kQueries, 1, true>(weights, values, v_dim, count, d, v_dim - d, sums,
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

void WeighUnit(const QueryTile& tile) {
  for (int64_t i = 0; i < tile.unit_count * tile.value_stride; i += kLanes) {
    Store(tile.span_sums + i, Zero());
  }
  for (int s = 0; s < tile.segment_count; ++s) {
    const Segment& segment = tile.segments[s];
    ForEachBlockOf(tile, segment, [&](int first, int count, const float*) {
      VisitKvFormat(tile.task->v_element, [&]<class Format>(Format) {
        if constexpr (Format::kHasScales) {
          AddQ8SegmentOf(tile, first, count, segment);
        } else {
          AddSegmentValues<typename Format::Number>(tile, first, count, segment);
        }
      });
    });
  }
  if (KvHasScales(tile.task->v_element)) ScaleQ8Sums(tile);
}

// ---- Spans -------------------------------------------------------------------------------------

// Some rows of the task, of which nothing is known yet.
void PlaceRows(QueryTile& tile, int64_t first_row, int rows) {
  const AttentionTask& task = *tile.task;
  tile.first_row = first_row;
  tile.rows = rows;
  tile.queries = rows * task.heads_per_kv;
  for (int r = 0; r < rows; ++r) {
    const int64_t position = task.positions[first_row + r];
    const int64_t oldest = FirstInWindow(task.window_kind, task.window, position);
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
}

// Whether the scales of all values of a run in these positions are finite, if it has any.
inline bool HasFiniteScales(const AttentionTask& task, const KvRun& run, PositionRange positions) {
  if (!KvHasScales(task.v_element)) return true;
  const int64_t begin = TileFloor(positions.begin) - run.first_position;
  const int64_t end =
      Least(run.count, TileFloor(positions.end + kKeyTileTokens - 1) - run.first_position);
  return AreFinite(run.value_scales + begin, end - begin);
}

// Collects the parts of runs, from run `*next` on, that lie in the span, and moves `*next` over
// the first runs that end in it.
void FindSegments(QueryTile& tile, size_t* next) {
  const AttentionTask& task = *tile.task;
  const PositionRange span = {tile.span_begin, tile.span_begin + kAttentionSpan};
  const PositionRange wanted = Intersect(span, tile.seen_by_any);
  tile.segment_count = 0;
  bool all_end = true;
  for (size_t i = *next; i < task.runs.size(); ++i) {
    const KvRun& run = task.runs[i];
    if (run.first_position >= span.end) return;
    const int64_t run_end = run.first_position + run.count;
    all_end &= run_end <= span.end;
    if (all_end) *next = i + 1;
    const uint64_t rows = tile.RowsOf(run.rows);
    const PositionRange positions = Intersect(wanted, {run.first_position, run_end});
    if (rows == 0 || positions.empty()) continue;
    tile.segments[tile.segment_count++] = {positions, &run, rows,
                                           HasFiniteScales(task, run, positions)};
  }
}

void AttendTile(QueryTile& tile) {
  const AttentionSlice& slice = tile.task->slice;
  const bool whole = slice.partials == nullptr;
  PackQueries(tile);
  if (tile.task->key_form == KeyForm::kValueFirst) PackLatents(tile);
  size_t next_run = 0;
  const int64_t first = tile.seen_by_any.begin / kAttentionSpan;
  const int64_t end = (tile.seen_by_any.end + kAttentionSpan - 1) / kAttentionSpan;
  for (int64_t c = whole ? first : slice.begin; c < (whole ? end : slice.end); ++c) {
    tile.span_begin = c * kAttentionSpan;
    FindSegments(tile, &next_run);
    if (tile.segment_count == 0) {
      for (int q = 0; q < (whole ? 0 : tile.queries); ++q) PartialOf(tile, q)[1] = 0.0f;
      continue;
    }
    ForEachUnit(tile, [&] {
      const int unit_end = tile.unit_first + tile.unit_count;
      ScoreUnit(tile);
      for (int q = tile.unit_first; q < unit_end; ++q) SoftmaxQuery(tile, q);
      WeighUnit(tile);
      for (int q = tile.unit_first; q < unit_end; ++q) FinishSpan(tile, q);
    });
  }
  if (whole) WriteResults(tile);
}

void MergeTile(QueryTile& tile) {
  const AttentionSlice& slice = tile.task->slice;
  for (int64_t c = slice.begin; c < slice.end; ++c) {
    tile.span_begin = c * kAttentionSpan;
    for (int q = 0; q < tile.queries; ++q) {
      const float* record = PartialOf(tile, q);
      MergePartial(tile, q, record[0], record[1], record + 16);
    }
  }
  WriteResults(tile);
}

// visit(tile) for the tiles of a task.
template <class Visit>
void ForEachTile(const AttentionTask& task, const Visit& visit) {
  QueryTile tile;
  tile.task = &task;
  PlaceTile(task.scratch.data(), task.rows, task.heads_per_kv, task.k_dim, task.v_dim,
            task.key_form, tile);
  const int tile_rows = RowsOfQueries(kTileQueries, task.rows, task.heads_per_kv);
  for (int64_t row = 0; row < task.rows; row += tile_rows) {
    PlaceRows(tile, row, static_cast<int>(Least(tile_rows, task.rows - row)));
    visit(tile);
  }
}

void Attention(const AttentionTask& task) { ForEachTile(task, AttendTile); }
void AttentionMerge(const AttentionTask& task) { ForEachTile(task, MergeTile); }
