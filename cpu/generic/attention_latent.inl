// Scores of keys that begin with their values (KeyForm::kValueFirst). The product of a query's
// first part with the value, read where values lie, is added to the product with the key tiles,
// both times their factors.
//
// Included inside an instruction set's namespace and target region, after attention_q8.inl and
// before attention.inl.
//
// Float products are kept in sixteen lanes, lane = dimension % 16, as in SumLanes; those of q8
// codes are exact integers. So neither blocks nor vector widths change a bit.

// scores[q][token] = key_factors[q] * scores[q][token] + scale * (query q . value of token) for
// kTokens adjacent tokens.
template <int kQueries, int kTokens, class Element>
inline void AddValueProducts(const float* const* queries, int64_t v_dim, const Element* values,
                             const float* key_factors, float scale, float* scores) {
  F32 sums[kQueries][kTokens][kSumVectors];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < kSumVectors; ++v) sums[q][t][v] = Zero();
    }
  }
  int64_t d = 0;
  for (; d + kSumLanes <= v_dim; d += kSumLanes) {
    PrefetchAhead<kTokens * kSumLanes * sizeof(Element)>(values + d * kTokens);
#pragma GCC unroll 8
    for (int v = 0; v < kSumVectors; ++v) {
      const int64_t at = d + v * kLanes;
      F32 value[kTokens];
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) value[t] = LoadElements(values + t * v_dim + at);
#pragma GCC unroll 8
      for (int q = 0; q < kQueries; ++q) {
        const F32 query = Load(queries[q] + at);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) sums[q][t][v] = MulAdd(query, value[t], sums[q][t][v]);
      }
    }
  }
  if (d < v_dim) {
#pragma GCC unroll 8
    for (int v = 0; v < kSumVectors; ++v) {
      const int64_t at = d + v * kLanes;
      const int64_t count = Least(kLanes, Greatest(0, v_dim - at));
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const F32 value = LoadElementsPartial(values + t * v_dim + at, count);
#pragma GCC unroll 8
        for (int q = 0; q < kQueries; ++q) {
          sums[q][t][v] = MulAdd(LoadPartial(queries[q] + at, count), value, sums[q][t][v]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      float& score = scores[q * kScoreStride + t];
      score = score * key_factors[q] + scale * SumLanes(sums[q][t]);
    }
  }
}

// Adds the products with values to the scores of all of a segment's positions that some of the
// query vectors see.
template <int kQueries, class Element>
void AddValueScores(const QueryTile& tile, int first, const KvRun& run, PositionRange positions) {
  constexpr int kTokens = BlockWidth(kQueries, kSumVectors);
  const int64_t v_dim = tile.task->v_dim;
  const float* queries[kQueries];
  for (int q = 0; q < kQueries; ++q) queries[q] = QueryOf(tile, first + q);
  const auto add = [&]<int kCount>(std::integral_constant<int, kCount>, int64_t p) {
    AddValueProducts<kQueries, kCount>(
        queries, v_dim,
        reinterpret_cast<const Element*>(run.values) + (p - run.first_position) * v_dim,
        tile.query_factor + first, tile.task->scale, tile.ScoresOf(first) + (p - tile.span_begin));
  };
  int64_t p = positions.begin;
  for (; p + kTokens <= positions.end; p += kTokens) {
    add(std::integral_constant<int, kTokens>(), p);
  }
  for (; p < positions.end; ++p) add(std::integral_constant<int, 1>(), p);
}

// Writes the codes of the part of each query vector that meets q8 values.
void PackLatents(const QueryTile& tile) {
  const AttentionTask& task = *tile.task;
  if (!KvHasScales(task.v_type)) return;
  for (int query = 0; query < tile.queries; ++query) {
    alignas(4) int8_t codes[kKvQ8DimMax];
    tile.latent_factor[query] =
        QuantizeVector(QueryOf(tile, query), task.v_dim, codes) * task.scale;
    int32_t sum = 0;
    for (int d = 0; d < task.v_dim; ++d) sum += codes[d];
    tile.latent_sum[query] = sum;
    int32_t* words = tile.latent_codes + query * tile.latent_stride;
    for (int64_t i = 0; i < tile.latent_stride; ++i) {
      words[i] = 0;
      if (i / 4 * 4 < task.v_dim) std::memcpy(words + i, codes + i / 4 * 4, 4);
    }
  }
}

// The products of kQueries query vectors with kGroups adjacent groups of four tokens.
template <int kQueries, int kGroups>
inline void AddQ8ValueProducts(const QueryTile& tile, int first, const int8_t* values,
                               const float* value_scales, int64_t tokens, float* scores) {
  const int64_t v_dim = tile.task->v_dim;
  const int32_t* words = tile.latent_codes + first * tile.latent_stride;
  I32 sums[kQueries][kGroups];
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) sums[q][g] = ZeroInts();
  }
  for (int64_t d = 0; d < v_dim; d += kLanes) {
    I32 keys[kGroups];
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      const int8_t* part = values + (g * v_dim + d) * kValueTileTokens;
      if (d + kLanes <= v_dim) {
        keys[g] = LoadValuesAsKeys(part);
      } else {
        int8_t rest[kLanes * kValueTileTokens] = {};
        std::memcpy(rest, part, static_cast<size_t>((v_dim - d) * kValueTileTokens));
        keys[g] = LoadValuesAsKeys(rest);
      }
    }
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) {
      const I32 query = LoadInts(words + q * tile.latent_stride + d);
#pragma GCC unroll 8
      for (int g = 0; g < kGroups; ++g) AddKeyProducts(keys[g], query, sums[q][g]);
    }
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQueries; ++q) {
    const float factor = tile.latent_factor[first + q];
    const float key_factor = tile.query_factor[first + q];
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      int32_t dots[kValueTileTokens];
      StoreTokenSums(sums[q][g], tile.latent_sum[first + q], dots);
      const int64_t token = g * kValueTileTokens;
      const int64_t count = Least(kValueTileTokens, tokens - token);
      float* place = scores + q * kScoreStride + token;
      for (int64_t t = 0; t < count; ++t) {
        const float product = static_cast<float>(dots[t]) * value_scales[token + t];
        place[t] = place[t] * key_factor + product * factor;
      }
    }
  }
}

template <int kQueries>
void AddQ8ValueScores(const QueryTile& tile, int first, const KvRun& run, PositionRange positions) {
  constexpr int kGroups = BlockWidth(kQueries, 1);
  constexpr int64_t kTokens = kGroups * kValueTileTokens;
  const int64_t v_dim = tile.task->v_dim;
  const auto add = [&]<int kCount>(std::integral_constant<int, kCount>, int64_t token) {
    AddQ8ValueProducts<kQueries, kCount>(
        tile, first, reinterpret_cast<const int8_t*>(run.values) + token * v_dim,
        ValueScalesOf(run) + token, run.count - token,
        tile.ScoresOf(first) + (run.first_position + token - tile.span_begin));
  };
  int64_t token = (positions.begin - run.first_position) / kValueTileTokens * kValueTileTokens;
  const int64_t end = positions.end - run.first_position;
  for (; token + kTokens <= end; token += kTokens) {
    add(std::integral_constant<int, kGroups>(), token);
  }
  for (; token < end; token += kValueTileTokens) add(std::integral_constant<int, 1>(), token);
}

template <int kQueries>
void AddValueScoresOfBlock(const QueryTile& tile, int first, const Segment& segment,
                           PositionRange positions) {
  VisitKvVectorFormat(tile.task->v_type, [&]<class Format>(Format) {
    if constexpr (Format::kHasScales) {
      AddQ8ValueScores<kQueries>(tile, first, *segment.run, positions);
    } else {
      AddValueScores<kQueries, typename Format::Number>(tile, first, *segment.run, positions);
    }
  });
}

void AddValueScoresOf(const QueryTile& tile, int first, int count, const Segment& segment) {
  const PositionRange positions = Intersect(segment.positions, SeenByAny(tile, first, count));
  if (positions.empty()) return;
  switch (count) {
    case 1: return AddValueScoresOfBlock<1>(tile, first, segment, positions);
    case 2: return AddValueScoresOfBlock<2>(tile, first, segment, positions);
    case 4: return AddValueScoresOfBlock<4>(tile, first, segment, positions);
    default: return AddValueScoresOfBlock<kBlockQueries>(tile, first, segment, positions);
  }
}
