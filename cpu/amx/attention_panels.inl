// The operands of attention's tile products: queries of a tile, keys and values of a span, weights
// of a unit, laid out as tiles in a thread's scratch memory.
//
// Included inside the target region of attention.cpp, after attention_tiles.inl and
// cpu/generic/attention_spans.inl.

constexpr TileCut kTileCut = {
    .tile_queries = 256, .unit_queries = 2 * kTileLines, .unit_multiple = kTileLines};
constexpr int64_t kSpanTiles = kAttentionSpan / kKeyTileTokens;
// Bytes between the weights of two query vectors: not a power of two, for the cache's sake.
constexpr int64_t kWeightBytes = 2 * kAttentionSpan + kLineBytes;

// The sizes are for floats in three parts, which take most.
struct AttentionPanels {
  std::byte* queries;  // [blocks of 16 of each unit][parts][steps of k_dim] tiles
  std::byte* keys;     // [kSpanTiles][parts][steps of k_dim] tiles
  float* key_scales;   // [kAttentionSpan], of q8 keys
  std::byte* values;   // [steps of the span][parts][16 of v_dim] tiles
  std::byte* weights;  // [parts][blocks of a unit][16][kWeightBytes]
  int32_t* byte_sums;  // [2][16][value_stride]: values by the low and the high bytes of codes
  std::byte* zeros;    // a value of zeros
  int64_t* left_out;   // [kAttentionSpan] positions of the span whose values are not finite
  int64_t left_out_count;
  int64_t unit_blocks;  // blocks of 16 query vectors of a unit, the last one perhaps not full
  int64_t value_tiles;  // blocks of 16 of v_dim
};

// Lays the panels of a tile that PlaceTile has placed out in memory from `base` on, if that is not
// null, and returns their size.
size_t PlacePanels(std::byte* base, int64_t rows, int heads_per_kv, int k_dim, int v_dim,
                   AttentionPanels& panels) {
  size_t size = 0;
  const auto place = [&](auto*& array, int64_t bytes) {
    if (base != nullptr) {
      array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(base + size);
    }
    size += RoundUp(static_cast<size_t>(bytes), 64);
  };
  const int64_t tile_rows = TileRowsOf(kTileCut, rows, heads_per_kv);
  const int64_t unit_rows = RowsOfQueries(kTileCut.unit_queries, tile_rows, heads_per_kv);
  const int64_t units = (tile_rows + unit_rows - 1) / unit_rows;
  panels.unit_blocks = StepsOf(unit_rows * heads_per_kv, kTileLines);
  panels.value_tiles = StepsOf(v_dim, kTileLines);
  const int64_t key_bytes = kPartsMax * StepsOf(k_dim, 32) * kTileBytes;
  place(panels.queries, units * panels.unit_blocks * key_bytes);
  place(panels.keys, kSpanTiles * key_bytes);
  place(panels.key_scales, kAttentionSpan * int64_t{sizeof(float)});
  place(panels.values, kAttentionSpan / 32 * kPartsMax * panels.value_tiles * kTileBytes);
  place(panels.weights, kPartsMax * panels.unit_blocks * kTileLines * kWeightBytes);
  place(panels.byte_sums, 2 * panels.value_tiles * kTileBytes);
  place(panels.zeros, panels.value_tiles * kLineBytes);
  place(panels.left_out, kAttentionSpan * int64_t{sizeof(int64_t)});
  return size;
}

// The tiles that 16 query vectors, or 16 positions, take of the panels, in bytes.
template <class Format>
int64_t KeyTilesBytes(int k_dim) {
  return kPartsOf<Format> * StepsOf(k_dim, kStepOf<Format>) * kTileBytes;
}

// ---- Queries ------------------------------------------------------------------------------------

// Floats [at, at + 16) of `count`, zero beyond.
inline __m512 LoadWithin(const float* values, int64_t at, int64_t count) {
  if (at + kLanes <= count) return Load(values + at);
  return at < count ? LoadPartial(values + at, count - at) : Zero();
}

// A query times task->scale as line `line` of tiles of parts. NaN becomes the one that every
// rounding keeps.
template <class Format>
void PackQuery(const AttentionTask& task, const float* query, std::byte* line) {
  const int64_t steps = StepsOf(task.k_dim, kStepOf<Format>);
  const auto load = [&](int64_t at) {
    const __m512 x = Mul(LoadWithin(query, at, task.k_dim), Broadcast(task.scale));
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), Broadcast(NAN));
  };
  for (int64_t step = 0; step < steps; ++step) {
    PutPairs<kPartsOf<Format>, true>(load(32 * step), load(32 * step + kLanes),
                                     line + step * kTileBytes, steps * kTileBytes);
  }
}

// Stores a query as int8 codes in line `line` of tiles; returns the scale of the codes times
// task->scale.
inline float PackQueryCodes(const AttentionTask& task, const float* query, std::byte* line) {
  alignas(64) int8_t codes[kKvQ8DimMax + kLineBytes] = {};
  const float factor = QuantizeVector(query, task.k_dim, codes) * task.scale;
  for (int64_t step = 0; step < StepsOf(task.k_dim, kLineBytes); ++step) {
    std::memcpy(line + step * kTileBytes, codes + step * kLineBytes, kLineBytes);
  }
  return factor;
}

template <class Format>
void PackQueries(QueryTile& tile, const AttentionPanels& panels) {
  const AttentionTask& task = *tile.task;
  const int64_t block_bytes = KeyTilesBytes<Format>(task.k_dim);
  int64_t first_block = 0;
  ForEachUnit(tile, [&] {
    for (int i = 0; i < tile.unit_count; ++i) {
      const int query = tile.unit_first + i;
      std::byte* line = panels.queries + (first_block + i / kTileLines) * block_bytes +
                        i % kTileLines * kLineBytes;
      if constexpr (Format::kHasScales) {
        tile.query_factor[query] = PackQueryCodes(task, QueryOf(tile, query), line);
      } else {
        tile.query_factor[query] = 1.0f;
        PackQuery<Format>(task, QueryOf(tile, query), line);
      }
    }
    first_block += panels.unit_blocks;
  });
}

// ---- Keys ---------------------------------------------------------------------------------------

// Sixteen positions of the cache to the tiles of a panel; dimensions beyond k_dim are zeros.
template <class Format>
void PackKeyTile(const std::byte* keys, int k_dim, std::byte* tiles) {
  const int64_t steps = StepsOf(k_dim, kStepOf<Format>);
  if constexpr (Format::kHasScales) {
    const __m512i flip = _mm512_set1_epi8(static_cast<char>(Format::kKeyFlip));
    const int64_t lines = StepsOf(k_dim, 4);
    for (int64_t line = 0; line < steps * kTileLines; ++line) {
      const __m512i codes =
          line < lines ? _mm512_xor_si512(_mm512_loadu_si512(keys + line * kLineBytes), flip)
                       : _mm512_setzero_si512();
      _mm512_store_si512(tiles + line * kLineBytes, codes);
    }
  } else {
    using Number = typename Format::Number;
    const auto load = [&](int64_t d) {
      if (d >= k_dim) return Zero();
      return LoadElements(reinterpret_cast<const Number*>(keys) + d * kKeyTileTokens);
    };
    for (int64_t line = 0; line < steps * kTileLines; ++line) {
      const int64_t d = line / kTileLines * 32 + line % kTileLines;
      PutPairs<kPartsOf<Format>, false>(load(d), load(d + kTileLines), tiles + line * kLineBytes,
                                        steps * kTileBytes);
    }
  }
}

// Packs the keys of a span's segments. Keys of positions between segments stay as they are: nothing
// is done with their scores.
template <class Format>
void PackKeys(const QueryTile& tile, const AttentionPanels& panels) {
  const int k_dim = tile.task->k_dim;
  for (int s = 0; s < tile.segment_count; ++s) {
    const Segment& segment = tile.segments[s];
    const KvRun& run = *segment.run;
    for (int64_t p = TileFloor(segment.positions.begin); p < segment.positions.end;
         p += kKeyTileTokens) {
      const int64_t token = p - run.first_position;
      const int64_t at = p - tile.span_begin;
      const int64_t offset = token / kKeyTileTokens *
                             static_cast<int64_t>(Format::KeyTileBytes(static_cast<size_t>(k_dim)));
      PackKeyTile<Format>(run.keys + offset, k_dim,
                          panels.keys + at / kKeyTileTokens * KeyTilesBytes<Format>(k_dim));
      if constexpr (Format::kHasScales) {
        Store(panels.key_scales + at, Load(KeyScalesOf(run) + token));
      }
    }
  }
}

// ---- Values -------------------------------------------------------------------------------------

// Where the values of each position of a step lie, or of each group of four positions for q8; null
// where no segment has the positions.
template <class Format>
struct StepValues {
  static constexpr int64_t kGroup = Format::kHasScales ? kValueTileTokens : 1;
  static constexpr int64_t kGroups = kStepOf<Format> / kGroup;
  const std::byte* groups[kGroups] = {};

  StepValues(const QueryTile& tile, int64_t position) {
    const auto bytes = static_cast<int64_t>(
        Format::ValueTileBytes(static_cast<size_t>(tile.task->v_dim)) * kGroup / kValueTileTokens);
    for (int s = 0; s < tile.segment_count; ++s) {
      const Segment& segment = tile.segments[s];
      const PositionRange range =
          Intersect(segment.positions, {position, position + kStepOf<Format>});
      const int64_t first = segment.run->first_position;
      for (int64_t p = range.begin / kGroup * kGroup; p < range.end; p += kGroup) {
        groups[(p - position) / kGroup] = segment.run->values + (p - first) / kGroup * bytes;
      }
    }
  }
};

// Finite numbers become numbers that are not, by a rounding, only if their double is none.
inline F32 CheckFinite(F32 numbers, F32 check) {
  return MulAdd(Add(numbers, numbers), Zero(), check);
}

// Whether all numbers of a value and their parts are finite.
template <class Number>
bool IsFinite(const std::byte* value, int64_t v_dim) {
  const Number* numbers = reinterpret_cast<const Number*>(value);
  F32 products = Zero();
  for (int64_t d = 0; d < v_dim; d += kLanes) {
    products = CheckFinite(LoadElementsPartial(numbers + d, Least(kLanes, v_dim - d)), products);
  }
  return SumByHalves(products) == 0.0f;
}

// 32 positions to the tiles of a step. Returns whether all their parts are finite.
template <class Format>
bool PackValueStep(const StepValues<Format>& values, int64_t v_dim, std::byte* tiles) {
  using Number = typename Format::Number;
  const int64_t value_tiles = StepsOf(v_dim, kTileLines);
  F32 check = Zero();
  for (int64_t t = 0; t < value_tiles; ++t) {
    const int64_t d = t * kLanes;
    const int64_t left = Least(kLanes, v_dim - d);
    const auto load = [&](int64_t row) __attribute__((always_inline)) {
      const Number* numbers = reinterpret_cast<const Number*>(values.groups[row]) + d;
      return left == kLanes ? LoadElements(numbers) : LoadElementsPartial(numbers, left);
    };
    for (int64_t line = 0; line < kTileLines; ++line) {
      const F32 first = load(line);
      const F32 second = load(line + kTileLines);
      check = CheckFinite(first, check);
      check = CheckFinite(second, check);
      PutPairs<kPartsOf<Format>, false>(first, second, tiles + t * kTileBytes + line * kLineBytes,
                                        value_tiles * kTileBytes);
    }
  }
  return SumByHalves(check) == 0.0f;
}

// The four of a step's positions that meet the codes of line `line`: CodeLines has the codes of
// sixteen positions in four lanes, those of four vectors side by side.
constexpr int64_t ValueGroupOf(int64_t line) { return line % 4 * 4 + line / 4; }

// 64 positions, as groups of four, to the tiles of a step. What lies in the memory of positions
// that are not there is multiplied by the code zero.
template <class Format>
void PackValueCodes(const StepValues<Format>& values, int64_t v_dim, std::byte* tiles) {
  for (int64_t t = 0; t < StepsOf(v_dim, kTileLines); ++t) {
    const int64_t d = t * kLanes;
    const int64_t left = Least(kLanes, v_dim - d);
    for (int64_t line = 0; line < kTileLines; ++line) {
      const std::byte* group = values.groups[ValueGroupOf(line)];
      const __m512i codes = group == nullptr ? _mm512_setzero_si512()
                                             : _mm512_maskz_loadu_epi32(
                                                   FirstLanes(left), group + d * kValueTileTokens);
      _mm512_store_si512(tiles + t * kTileBytes + line * kLineBytes, codes);
    }
  }
}

// Packs the values of a span's segments, with zeros between them and instead of values that are not
// finite. Positions of such values are left out of the tiles, because products with zero weights
// would be NaN.
template <class Format>
void PackValues(const QueryTile& tile, AttentionPanels& panels) {
  constexpr int64_t kStep = kStepOf<Format>;
  const int64_t v_dim = tile.task->v_dim;
  const int64_t step_bytes = kPartsOf<Format> * panels.value_tiles * kTileBytes;
  const PositionRange range = {tile.segments[0].positions.begin,
                               tile.segments[tile.segment_count - 1].positions.end};
  panels.left_out_count = 0;
  for (int64_t p = range.begin / kStep * kStep; p < range.end; p += kStep) {
    std::byte* tiles = panels.values + (p - tile.span_begin) / kStep * step_bytes;
    if constexpr (Format::kHasScales) {
      StepValues<Format> values(tile, p);
      PackValueCodes<Format>(values, v_dim, tiles);
    } else {
      using Number = typename Format::Number;
      StepValues<Format> values(tile, p);
      const auto or_zeros = [&](const std::byte* row) {
        return row != nullptr ? row : panels.zeros;
      };
      std::transform(values.groups, values.groups + kStep, values.groups, or_zeros);
      if (PackValueStep<Format>(values, v_dim, tiles)) continue;
      for (int64_t i = 0; i < kStep; ++i) {
        if (IsFinite<Number>(values.groups[i], v_dim)) continue;
        values.groups[i] = panels.zeros;
        panels.left_out[panels.left_out_count++] = p + i;
      }
      PackValueStep<Format>(values, v_dim, tiles);
    }
  }
}
