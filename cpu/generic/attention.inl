// Attention of any number of query rows over the cached keys and values of one kv head.
//
// Included inside an instruction set's namespace and target region, after its simd.inl, math.inl
// and the other parts of attention (attention_*.inl).
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

// ---- Queries ------------------------------------------------------------------------------------

// packed[d * kBlockQueries + q] = sources[q][d], d < k_dim.
void PackFloats(const float* const (&sources)[kBlockQueries], int64_t k_dim, float* packed) {
  constexpr int kParts = kLanes / kBlockQueries;  // vectors of a query that are transposed at once
  static_assert(kParts == 1 || kParts == 2);
  int64_t d = 0;
  for (; d + kParts * kLanes <= k_dim; d += kParts * kLanes) {
    F32 vectors[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      vectors[i] = Load(sources[i % kBlockQueries] + d + i / kBlockQueries * kLanes);
    }
    TransposeFloats(vectors);
    for (int i = 0; i < kLanes; ++i) {
      float* to = packed + (d + i) * kBlockQueries;
      if constexpr (kParts == 1) {
        Store(to, vectors[i]);
      } else {
        StoreHalves(to, to + kLanes * kBlockQueries, vectors[i]);
      }
    }
  }
  for (; d < k_dim; ++d) {
    for (int q = 0; q < kBlockQueries; ++q) packed[d * kBlockQueries + q] = sources[q][d];
  }
}

// Lays query vectors, as far as they meet key tiles, out as the blocks of ScoreUnit read them.
void PackBlock(const QueryTile& tile, int first, int count, float* packed) {
  const AttentionTask& task = *tile.task;
  const int begin = task.query_dim() - task.k_dim;
  const bool whole = count == kBlockQueries && !KvHasScales(task.k_type);
  const float* sources[kBlockQueries] = {};
  for (int q = 0; q < count; ++q) {
    const int query = first + q;
    const float* source = QueryOf(tile, query) + begin;
    sources[q] = source;
    tile.query_factor[query] = task.scale;
    if (whole) continue;
    if (!KvHasScales(task.k_type)) {
      for (int d = 0; d < task.k_dim; ++d) packed[d * count + q] = source[d];
      continue;
    }
    alignas(4) int8_t codes[kKvQ8DimMax];
    tile.query_factor[query] = QuantizeVector(source, task.k_dim, codes) * task.scale;
    int32_t sum = 0;
    for (int d = 0; d < task.k_dim; ++d) sum += codes[d];
    tile.query_sum[query] = sum;
    for (int d = 0; d < (task.k_dim + 3) / 4; ++d) {
      std::memcpy(packed + d * count + q, codes + 4 * d, 4);
    }
  }
  if (whole) PackFloats(sources, task.k_dim, packed);
}

void PackQueries(QueryTile& tile) {
  const AttentionTask& task = *tile.task;
  const auto pack_into = [&](float* packed) {
    return [&tile, &task, packed](int first, int count) {
      PackBlock(tile, first, count, packed + int64_t{first} * task.k_dim);
    };
  };
  ForEachUnit(tile,
              [&] { ForEachBlock(tile.unit_first, tile.unit_count, pack_into(tile.packed)); });
  bool masked = false;
  for (const KvRun& run : task.runs) masked |= run.rows != ~uint64_t{0};
  if (!masked) return;
  for (int row = 0; row < tile.rows; ++row) {
    ForEachBlock(row * task.heads_per_kv, task.heads_per_kv, pack_into(tile.packed_by_row));
  }
}

// ---- Scores -------------------------------------------------------------------------------------

// scores[q][token] = query q . key of token for kTiles adjacent key tiles.
//
// Here and in AddValueVectors the loops over constant counts are unrolled by order: GCC would
// otherwise do it too late to keep the sums out of memory.
template <class Factor, int kQueries, int kTiles, class Element>
inline void ScoreKeyTiles(const float* queries, int k_dim, const Element* keys, float* scores) {
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
      const Factor query(queries + d * kQueries + q);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) query.AddTo(key[v], sums[q][v]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Store(scores + q * kScoreStride + v * kLanes, sums[q][v]);
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
  UseFactors([&]<class Factor>() {
    ScoreKeyTiles<Factor, kQueries, kTiles>(packed, k_dim, keys, scores);
  });
}

// Scores of one block of query vectors over all of `positions`, which begin at a tile.
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
      VisitKvVectorFormat(tile.task->k_type, [&]<class Format>(Format) {
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
template <class Factor, int kQueries, int kVectors, bool kPartial, class Element>
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
      const Factor weight(weights + q * kScoreStride + i);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) weight.AddTo(value[v], total[q][v]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(sums + q * sum_stride + d + v * kLanes, total[q][v]);
  }
}

// Adds the weighted values of `positions` to the sums of kQueries query vectors, for all of v_dim.
template <class Factor, int kQueries, class Element>
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
      AddValueVectors<Factor, kQueries, kVectors, false>(weights, values, v_dim, count, d, 0, sums,
                                                         tile.value_stride);
    }
    for (; d + kLanes <= v_dim; d += kLanes) {
      AddValueVectors<Factor, kQueries, 1, false>(weights, values, v_dim, count, d, 0, sums,
                                                  tile.value_stride);
    }
    if (d < v_dim) {
      AddValueVectors<Factor, kQueries, 1, true>(weights, values, v_dim, count, d, v_dim - d, sums,
                                                 tile.value_stride);
    }
  }
}

template <class Element>
void AddValuesOf(int queries, const QueryTile& tile, int query, const Segment& segment,
                 PositionRange positions) {
  if (positions.empty()) return;
  UseFactors([&]<class Factor>() {
    switch (queries) {
      case 1: return AddValues<Factor, 1, Element>(tile, query, segment, positions);
      case 2: return AddValues<Factor, 2, Element>(tile, query, segment, positions);
      case 4: return AddValues<Factor, 4, Element>(tile, query, segment, positions);
      default: return AddValues<Factor, kBlockQueries, Element>(tile, query, segment, positions);
    }
  });
}

// Takes a block's positions in order: vector by vector before the positions that all its query
// vectors see, then those positions together, then vector by vector after them.
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
      VisitKvVectorFormat(tile.task->v_type, [&]<class Format>(Format) {
        if constexpr (Format::kHasScales) {
          AddQ8SegmentOf(tile, first, count, segment);
        } else {
          AddSegmentValues<typename Format::Number>(tile, first, count, segment);
        }
      });
    });
  }
  if (KvHasScales(tile.task->v_type)) ScaleQ8Sums(tile);
}

// ---- Tasks --------------------------------------------------------------------------------------

// A query's weights take the place of its scores.
struct FloatSink {
  float* weights;

  void operator()(int64_t offset, const F32 (&vectors)[kStepVectors]) const {
#pragma GCC unroll 4
    for (int v = 0; v < kStepVectors; ++v) Store(weights + offset + v * kLanes, vectors[v]);
  }
};

// The products of this file.
struct VectorProducts {
  static void Begin(QueryTile& tile) {
    PackQueries(tile);
    if (tile.task->key_form == KeyForm::kValueFirst) PackLatents(tile);
  }
  static void BeginSpan(const QueryTile& /*tile*/) {}
  static void Score(const QueryTile& tile) { ScoreUnit(tile); }
  static void Finish(const QueryTile& /*tile*/, int /*query*/) {}
  template <class Format>
  static auto SinkOf(const QueryTile& tile, int query, PositionRange steps) {
    if constexpr (Format::kHasScales) {
      return CodeSink(tile, query, steps);
    } else {
      return FloatSink{tile.ScoresOf(query)};
    }
  }
  static void Weigh(const QueryTile& tile) { WeighUnit(tile); }
};

size_t AttentionScratchBytes(int64_t rows, int heads_per_kv, int k_dim, int v_dim,
                             KeyForm key_form) {
  QueryTile tile;
  tile.cut = TileCut();
  return PlaceTile(nullptr, rows, heads_per_kv, k_dim, v_dim, key_form, tile);
}

void Attention(const AttentionTask& task) {
  VectorProducts products;
  ForEachTile(task, TileCut(), [&](QueryTile& tile) { AttendTile(tile, products); });
}

void MergeTile(QueryTile& tile) {
  const AttentionSlice& slice = tile.task->slice;
  for (int64_t c = slice.begin; c < slice.end; ++c) {
    tile.span_begin = c * kAttentionSpan;
    for (int q = 0; q < tile.queries; ++q) {
      const float* record = PartialOf(tile, q);
      MergePartials(tile, q, 1, record, record + 1, record + 16);
    }
  }
  WriteResults(tile);
}

void AttentionMerge(const AttentionTask& task) { ForEachTile(task, TileCut(), MergeTile); }
