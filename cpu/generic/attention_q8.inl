// Attention over q8 keys and values: products of integers, exact whatever their order.
//
// Included inside an instruction set's namespace and target region, after attention_softmax.inl and
// before attention.inl.
//
// A score is the integer dot product of a query's codes with a key's, times the two scales. Weights
// are the integers of attention_codes.inl.

// ---- Scores -------------------------------------------------------------------------------------

// scores[q][token] = scale of the key * (query q . key of token) for kTiles adjacent key tiles;
// queries are [dims4][kQueries] words of four codes.
template <int kQueries, int kTiles>
inline void ScoreQ8KeyTiles(const int32_t* queries, const int32_t* query_sums, int dims4,
                            const uint8_t* keys, const float* key_scales, float* scores) {
  constexpr int kVectors = kTiles * kKeyTileVectors;
  constexpr int kRowBytes = kKeyTileTokens * 4;
  I32 sums[kQueries][kVectors];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[q][v] = KeyDotStart(query_sums[q]);
  }
  for (int d = 0; d < dims4; ++d) {
    PrefetchAhead<kTiles * kRowBytes>(keys + int64_t{d} * kTiles * kRowBytes);
    I32 key[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int64_t row = int64_t{v / kKeyTileVectors} * dims4 + d;
      key[v] = LoadKeyBytes(keys + row * kRowBytes + v % kKeyTileVectors * kLanes * 4);
    }
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        AddKeyDots(key[v], queries[d * kQueries + q], sums[q][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    const F32 key_scale = Load(key_scales + v * kLanes);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      Store(scores + q * kScoreStride + v * kLanes, Mul(ToFloat(sums[q][v]), key_scale));
    }
  }
}

// Scores of one block of query vectors over all of `positions`, which begin at a tile.
template <int kQueries>
void ScoreQ8Block(const QueryTile& tile, int first, const float* packed, const KvRun& run,
                  PositionRange positions) {
  constexpr int kTiles = BlockWidth(kQueries, kKeyTileVectors);
  const int dims4 = (tile.task->k_dim + 3) / 4;
  const auto score = [&]<int kCount>(std::integral_constant<int, kCount>, int64_t p) {
    const int64_t token = p - run.first_position;
    ScoreQ8KeyTiles<kQueries, kCount>(
        reinterpret_cast<const int32_t*>(packed), tile.query_sum + first, dims4,
        reinterpret_cast<const uint8_t*>(run.keys) + token * dims4 * 4, KeyScalesOf(run) + token,
        tile.ScoresOf(first) + (p - tile.span_begin));
  };
  int64_t p = positions.begin;
  for (; p + (kTiles - 1) * kKeyTileTokens < positions.end; p += kTiles * kKeyTileTokens) {
    score(std::integral_constant<int, kTiles>(), p);
  }
  for (; p < positions.end; p += kKeyTileTokens) score(std::integral_constant<int, 1>(), p);
}

void ScoreQ8BlockOf(const QueryTile& tile, int first, int count, const float* packed,
                    const KvRun& run, PositionRange positions) {
  switch (count) {
    case 1: return ScoreQ8Block<1>(tile, first, packed, run, positions);
    case 2: return ScoreQ8Block<2>(tile, first, packed, run, positions);
    case 4: return ScoreQ8Block<4>(tile, first, packed, run, positions);
    default: return ScoreQ8Block<kBlockQueries>(tile, first, packed, run, positions);
  }
}

// ---- Weighted values ----------------------------------------------------------------------------

// sums[q] += weights[q] . values over `groups` adjacent groups of tokens and kVectors vectors of
// v_dim from d on, each a cache line of a group; the only vector holds `rest` values where
// kPartial. The sums are int32.
template <int kQueries, int kVectors, bool kPartial>
inline void AddQ8Vectors(const FourCodes* weights, const int8_t* values, int64_t v_dim,
                         int64_t groups, int64_t d, int64_t rest, float* sums, int64_t sum_stride) {
  Dots total[kQueries][kVectors];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) total[q][v] = ZeroDots();
  }
  for (int64_t g = 0; g < groups; ++g) {
    PrefetchAhead<kVectors * kLanes * kValueTileTokens>(values +
                                                        (g * v_dim + d) * kValueTileTokens);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const int8_t* part = values + (g * v_dim + d + v * kLanes) * kValueTileTokens;
      const ValueCodes codes = kPartial ? LoadValueCodesPartial(part, rest) : LoadValueCodes(part);
#pragma GCC unroll 8
      for (int q = 0; q < kQueries; ++q) {
        AddValueDots(codes, weights[q * kWeightCodeStride + g], total[q][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* place = sums + q * sum_stride + d + v * kLanes;
      StoreInts(place, AddInts(LoadInts(place), Total(total[q][v])));
    }
  }
}

inline void ClearCodes(FourCodes* codes, PositionRange offsets) {
  if (offsets.empty()) return;
  std::memset(
      codes + offsets.begin / kValueTileTokens, 0,
      static_cast<size_t>((offsets.end - offsets.begin) / kValueTileTokens) * sizeof(FourCodes));
}

// A query's weights become codes.
struct CodeSink {
  FourCodes* codes;     // of the query
  const float* scales;  // by which weights become codes

  CodeSink(const QueryTile& tile, int query, PositionRange steps)
      : codes(tile.WeightCodesOf(query)), scales(tile.code_scales) {
    ClearCodes(codes, {0, steps.begin});
    ClearCodes(codes, {steps.end, kAttentionSpan});
  }
  void operator()(int64_t offset, const F32 (&weights)[kStepVectors]) const {
#pragma GCC unroll 4
    for (int v = 0; v < kStepVectors; ++v) {
      const int64_t at = offset + v * kLanes;
      StoreWeightCodes(ShiftedCode(weights[v], Load(scales + at)), codes + at / kValueTileTokens);
    }
  }
};

// As kValueStretch, in groups of tokens: longer, because sums of integers are added up from zero.
inline constexpr int64_t kQ8ValueStretch = 32;

// Adds the weighted values of a segment's positions that some of the query vectors see, for all of
// v_dim.
template <int kQueries>
void AddQ8Segment(const QueryTile& tile, int first, const Segment& segment) {
  constexpr int kVectors = BlockWidth(kQueries, 2);
  const PositionRange seen = Intersect(segment.positions, SeenByAny(tile, first, kQueries));
  if (seen.empty()) return;
  const int64_t v_dim = tile.task->v_dim;
  const int64_t run_begin = segment.run->first_position;
  const int8_t* values = reinterpret_cast<const int8_t*>(segment.run->values);
  const FourCodes* codes =
      tile.WeightCodesOf(first) + (run_begin - tile.span_begin) / kValueTileTokens;
  float* sums = tile.SpanSumsOf(first);
  const int64_t begin = (seen.begin - run_begin) / kValueTileTokens;
  const int64_t groups = (seen.end - run_begin + kValueTileTokens - 1) / kValueTileTokens - begin;
  codes += begin;
  values += begin * v_dim * kValueTileTokens;
  for (int64_t g = 0; g < groups; g += kQ8ValueStretch) {
    const int64_t count = Least(kQ8ValueStretch, groups - g);
    const FourCodes* some_codes = codes + g;
    const int8_t* some = values + g * v_dim * kValueTileTokens;
    int64_t d = 0;
    for (; d + kVectors * kLanes <= v_dim; d += kVectors * kLanes) {
      AddQ8Vectors<kQueries, kVectors, false>(some_codes, some, v_dim, count, d, 0, sums,
                                              tile.value_stride);
    }
    for (; d + kLanes <= v_dim; d += kLanes) {
      AddQ8Vectors<kQueries, 1, false>(some_codes, some, v_dim, count, d, 0, sums,
                                       tile.value_stride);
    }
    if (d < v_dim) {
      AddQ8Vectors<kQueries, 1, true>(some_codes, some, v_dim, count, d, v_dim - d, sums,
                                      tile.value_stride);
    }
  }
}

void AddQ8SegmentOf(const QueryTile& tile, int first, int count, const Segment& segment) {
  switch (count) {
    case 1: return AddQ8Segment<1>(tile, first, segment);
    case 2: return AddQ8Segment<2>(tile, first, segment);
    case 4: return AddQ8Segment<4>(tile, first, segment);
    default: return AddQ8Segment<kBlockQueries>(tile, first, segment);
  }
}
